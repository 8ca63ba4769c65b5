//! Sources of connections besides TCP.

use std::future::Future;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use crate::envelope::Peer;

/// A source of connections: a listener of Unix sockets, a receiver of streams, or one of your own, such as of vsock.
pub trait Incoming: Send {
    /// A connection, before TLS.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection; `None` if there will be no more.
    fn next(&mut self) -> impl Future<Output = Option<io::Result<(Self::Stream, Peer)>>> + Send;
}

/// Peers have their credentials.
#[cfg(unix)]
impl Incoming for UnixListener {
    type Stream = UnixStream;

    async fn next(&mut self) -> Option<io::Result<(UnixStream, Peer)>> {
        let accepted = self.accept().await;
        Some(accepted.and_then(|(stream, _)| Peer::of_unix(&stream).map(|peer| (stream, peer))))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Incoming for mpsc::Receiver<T> {
    type Stream = T;

    async fn next(&mut self) -> Option<io::Result<(T, Peer)>> {
        let stream = self.recv().await?;
        Some(Ok((stream, Peer::default())))
    }
}
