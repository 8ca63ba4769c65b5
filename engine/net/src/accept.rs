//! The accept loop: admission, distribution to threads, and graceful shutdown.

use std::borrow::BorrowMut;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

/// Pause after a failed `accept`: without free descriptors, an immediate retry would only spin.
const PAUSE: Duration = Duration::from_millis(50);

/// A listener's admission and protocol.
pub trait Accept: Clone + Send + 'static {
    /// A connection's permit, held while it is served.
    type Permit: Send;

    /// Permit for the next connection. While this waits, further connections stay in the system's queue; `None` closes
    /// the connection.
    fn admit(&self, peer: SocketAddr) -> impl Future<Output = Option<Self::Permit>> + Send;

    /// Serves a connection to its end. `draining` turns true when the listener stops.
    fn connection(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        permit: Self::Permit,
        draining: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send;

    /// Reports that the system could not accept a connection, most likely for lack of descriptors.
    fn cannot_accept(&self, _error: &io::Error) {}
}

/// Time without a request after which a drain closes a connection. A client that has just been answered, or has just
/// connected, may be sending its next request.
pub const QUIET_MAX: Duration = Duration::from_millis(250);

/// Accepts connections until `shutdown` is ready, on `workers` in turn, or on this runtime if there are none; then
/// waits until all have ended, for `drain_timeout` at most.
pub async fn accept<A: Accept>(
    acceptor: &A,
    listener: TcpListener,
    workers: &[Handle],
    shutdown: impl Future<Output = ()>,
    drain_timeout: Duration,
) {
    let (drain, draining) = watch::channel(false);
    // Nothing is sent: the drop of the last sender reports the end of all connections.
    let (alive, mut ended) = mpsc::channel::<()>(1);
    let mut shutdown = pin!(shutdown);
    let mut turn = 0_usize;
    loop {
        // `shutdown` is polled first, so that a flood of connections cannot hold it back.
        let accepted = poll_fn(|cx| match shutdown.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => listener.poll_accept(cx).map(Some),
        });
        let (stream, peer) = match accepted.await {
            None => break,
            Some(Ok(accepted)) => accepted,
            Some(Err(error)) => {
                acceptor.cannot_accept(&error);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(permit) = before(acceptor.admit(peer), &mut shutdown).await else { break };
        let Some(permit) = permit else { continue };
        // A failure only costs some milliseconds.
        let _ = stream.set_nodelay(true);
        let (acceptor, draining, alive) = (acceptor.clone(), draining.clone(), alive.clone());
        let Some(worker) = workers.get(turn % workers.len().max(1)) else {
            tokio::spawn(async move {
                acceptor.connection(stream, peer, permit, draining).await;
                drop(alive);
            });
            continue;
        };
        turn = turn.wrapping_add(1);
        // A stream is bound to its runtime's reactor, so it is recreated on the worker's.
        let Ok(stream) = stream.into_std() else { continue };
        worker.spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                acceptor.connection(stream, peer, permit, draining).await;
            }
            drop(alive);
        });
    }
    drop(listener);
    drain.send_replace(true);
    drop(alive);
    let _ = tokio::time::timeout(drain_timeout, ended.recv()).await;
}

/// Completes when the signal turns true, or its sender is gone.
pub async fn turned_on(mut signal: impl BorrowMut<watch::Receiver<bool>>) {
    let _ = signal.borrow_mut().wait_for(|is_on| *is_on).await;
}

/// The future's result, unless `end` is ready before it.
pub async fn before<F: Future>(future: F, mut end: impl Future<Output = ()> + Unpin) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Pin::new(&mut end).poll(cx).map(|()| None),
    })
    .await
}
