//! Socket options of both ends. Must not know what is sent.

use tokio::net::TcpStream;

/// For small messages that answer each other: a message does not wait for more bytes, and the next message acknowledges
/// the last one instead of a separate packet.
pub(crate) fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_quickack(false)
}
