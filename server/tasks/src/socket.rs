//! Socket options of both ends.

use tokio::net::TcpStream;

/// Optimises for small messages that answer each other: no delay for more bytes, and acknowledgements sent with the
/// next message.
pub(crate) fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_quickack(false)
}
