//! What both ends ask of a socket. Must not know who talks over it.

use tokio::net::TcpStream;

/// For small messages that answer each other: none waits for more, and what was received is acknowledged by what is
/// sent next, not by a packet of its own, of which a young connection sends many.
pub(crate) fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_quickack(false)
}
