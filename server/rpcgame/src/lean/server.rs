//! Lean connections on sockets: accepting, distribution to threads, timeouts, shutdown.
//!
//! Nothing is read from a client while values wait to be written, so a slow client holds no more than its window
//! allows.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use hosting::access::{Admitted, Denied, Gate};
use hosting::{Client, Place, Places, Warnings};
use quire_rpc::Peer;
use quire_rpc::rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use super::fault::{Fault, FaultCode};
use super::session::Session;
use crate::counts::LeanEnd;
use crate::registry::Games;
use crate::settings::LeanLimits;

/// Pause after a failed `accept`: without free descriptors, retrying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Size of a read.
const READ_BYTES: usize = 64 * 1024;
/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that may make room for others at the same time.
const LEAVING_MAX: usize = 64;
/// Time limit for sending a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(500);

/// Reason sent to a connection that makes room.
const REPLACED: &str = "all connections are taken, and another client needs this one";

thread_local! {
    /// Read buffer for connections without a partial frame: idle ones hold none.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Serves the lean protocol; clones share the limits.
#[derive(Clone, Debug)]
pub struct Server {
    games: Games,
    connections: Places,
    warnings: Warnings,
    limits: Arc<LeanLimits>,
    drain: Duration,
    gate: Option<Gate>,
    /// Set if TLS is required.
    tls: Option<Arc<ServerConfig>>,
}

/// End of a connection: reason and details.
type End = (LeanEnd, String);

/// Places for connections, and a few more for those that make room.
fn places(most: usize, asks_callers: bool) -> Places {
    Places::new(most, LEAVING_MAX.min(most / 4), asks_callers)
}

impl Server {
    /// Ends of games are reported to `games`. `drain` is the time that a running game has when the server stops.
    pub fn new(games: Games, limits: LeanLimits, drain: Duration) -> Self {
        let connections = places(limits.connections_max, false);
        let warnings = Warnings::default();
        Self { games, connections, warnings, limits: Arc::new(limits), drain, gate: None, tls: None }
    }

    /// Requires the credentials that `gate` asks for, and TLS if `tls` is set.
    #[must_use]
    pub fn guarded(self, gate: Gate, tls: Option<Arc<ServerConfig>>) -> Self {
        let gate = Some(gate).filter(Gate::asks);
        let connections = places(self.limits.connections_max, gate.is_some());
        Self { connections, gate, tls, ..self }
    }

    /// The games it serves, which also hold its counts.
    pub fn games(&self) -> &Games {
        &self.games
    }

    /// Accepts connections until `shutdown` is ready, on `workers` in turn (on this runtime if the list is empty); then
    /// running games may finish.
    pub async fn serve(
        &self,
        listener: TcpListener,
        workers: Vec<Handle>,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let (drain, draining) = watch::channel(false);
        let (alive, mut gone) = mpsc::channel::<()>(1);
        let mut shutdown = std::pin::pin!(shutdown);
        let mut turn = 0_usize;
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // A failure only costs some milliseconds.
            let _ = stream.set_nodelay(true);
            let (server, draining, alive) = (self.clone(), draining.clone(), alive.clone());
            let Some(worker) = workers.get(turn % workers.len().max(1)) else {
                tokio::spawn(async move { server.connection(stream, draining, alive).await });
                continue;
            };
            turn = turn.wrapping_add(1);
            // A stream belongs to the reactor of its runtime, so it is recreated on the worker's.
            let stream = stream.into_std()?;
            worker.spawn(async move {
                if let Ok(stream) = TcpStream::from_std(stream) {
                    server.connection(stream, draining, alive).await;
                }
            });
        }
        drop(listener);
        drain.send_replace(true);
        drop(alive);
        // A connection that is not done by then is cut off with the runtime.
        let _ = timeout(self.drain, gone.recv()).await;
        Ok(())
    }

    async fn connection(self, stream: TcpStream, draining: watch::Receiver<bool>, alive: mpsc::Sender<()>) {
        let peer = stream.peer_addr().ok();
        let client = Client::at(peer.map(|peer| peer.ip()));
        let place = self.connections.take(&client).map(|place| Counted::new(&self.games, place));
        match place.as_ref().map(|place| place.place.instead_of()) {
            None => self.warnings.refused("rpcgame.lean_connections", &client),
            Some(Some(other)) => self.warnings.made_room("rpcgame.lean_connections", other),
            Some(None) => {}
        }
        let held = place.as_ref().map(|place| &place.place);
        let (end, details) = match self.tls.clone() {
            None => self.serve_one(stream, peer, Vec::new(), held, draining).await,
            // Boxed: plain connections need no room for TLS.
            Some(tls) => Box::pin(self.serve_tls(tls, stream, peer, held, draining)).await,
        };
        self.games.counts().lean_ended(end);
        let (reason, peer) = (end.name(), peer.map(tracing::field::display));
        if matches!(end, LeanEnd::Client | LeanEnd::Stopping) {
            tracing::debug!(peer, reason, details, "a lean connection was closed");
        } else {
            tracing::info!(peer, reason, details, "a lean connection was closed");
        }
        drop(place);
        drop(alive);
    }

    async fn serve_tls(
        &self,
        tls: Arc<ServerConfig>,
        stream: TcpStream,
        peer: Option<SocketAddr>,
        place: Option<&Place>,
        draining: watch::Receiver<bool>,
    ) -> End {
        let allowed = if place.is_some() { HANDSHAKE_TIMEOUT } else { REFUSAL_TIMEOUT };
        let leave = async {
            match place {
                Some(place) => place.leave().await,
                None => std::future::pending().await,
            }
        };
        let accepted = tokio::select! {
            accepted = timeout(allowed, TlsAcceptor::from(tls).accept(stream)) => accepted,
            () = leave => return (LeanEnd::Limit, REPLACED.to_owned()),
        };
        match accepted {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let shown = shown.iter().map(|der| der.to_vec()).collect();
                self.serve_one(stream, peer, shown, place, draining).await
            }
            Ok(Err(error)) => (LeanEnd::Broken, format!("no TLS: {error}")),
            Err(_) => (LeanEnd::Broken, "no TLS in time".to_owned()),
        }
    }

    async fn serve_one<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        address: Option<SocketAddr>,
        certificates: Vec<Vec<u8>>,
        place: Option<&Place>,
        draining: watch::Receiver<bool>,
    ) -> End {
        let mut session = Session::new(self.limits.session.clone());
        let Some(place) = place else {
            let fault = Fault::too_many_connections(self.limits.connections_max);
            session.end(fault.clone());
            let _ = timeout(REFUSAL_TIMEOUT, self.write(&mut stream, &mut session)).await;
            return (LeanEnd::Superfluous, fault.to_string());
        };
        let (shown, admitted) = oneshot::channel();
        if let Some(gate) = self.gate.clone() {
            let mut peer = Peer::default();
            peer.address = address;
            peer.certificates = certificates.into_iter().map(Into::into).collect();
            let known = place.known();
            let admit = move |token: Option<&[u8]>| match gate.admit(token, &peer) {
                Ok(admitted) => {
                    known.store(admitted.is_some(), Relaxed);
                    // The connection waits for it; sending fails only if that has ended.
                    drop(shown.send(admitted));
                    Ok(())
                }
                Err(Denied::Missing) => {
                    Err("send a token of the scope play in a TOKEN frame before the HELLO".to_owned())
                }
                Err(denied) => Err(gate.told(&denied)),
            };
            session = session.guarded(Box::new(admit));
        }
        let ended = tokio::select! {
            end = self.run(&mut stream, &mut session, place, draining) => Some(end),
            () = revoked(admitted) => None,
        };
        if let Some(end) = ended {
            return end;
        }
        // It may be its client that takes nothing.
        let text = "the credential was revoked";
        let part = self.part(&mut stream, &mut session, FaultCode::Denied, text);
        timeout(REFUSAL_TIMEOUT, part).await.unwrap_or_else(|_| (LeanEnd::Denied, text.to_owned()))
    }

    /// Runs a connection to its end.
    async fn run<S>(
        &self,
        stream: &mut S,
        session: &mut Session,
        place: &Place,
        mut draining: watch::Receiver<bool>,
    ) -> End
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut input = Input::default();
        let mut idle_at = Instant::now() + self.limits.idle;
        let (mut is_draining, mut is_leaving) = (false, false);
        loop {
            let mut rest = input.bytes();
            let before = rest.len();
            let received = session.receive(&mut rest);
            if rest.len() < before {
                idle_at = Instant::now() + self.limits.idle;
            }
            let taken = before - rest.len();
            input.consume(taken);
            self.games.counts().lean_handled(session.take_messages());
            let ended = session.take_games_ended();
            if let Err(end) = self.write(stream, session).await {
                return end;
            }
            if ended > 0 {
                self.games.note_ended(ended);
            }
            if let Err(fault) = received {
                return (fault.code.end(), fault.to_string());
            }
            is_draining |= *draining.borrow();
            if is_draining && session.is_between_games() {
                return self.part(stream, session, FaultCode::Stopping, "the server stops").await;
            }
            if is_leaving && session.is_between_games() {
                return self.part(stream, session, FaultCode::Limit, REPLACED).await;
            }
            place.set_busy(!session.is_between_games());
            // Frames that came while output was waiting are still there.
            if taken > 0 && !input.is_empty() {
                continue;
            }
            let read = tokio::select! {
                biased;
                read = input.read(stream) => read,
                () = tokio::time::sleep_until(idle_at) => {
                    return self.part(stream, session, FaultCode::Idle, "no frame came for too long").await;
                }
                () = place.leave(), if !is_leaving => {
                    is_leaving = true;
                    // A silent game under way has as long as when the server stops.
                    idle_at = idle_at.min(Instant::now() + self.drain);
                    continue;
                }
                () = told(&mut draining), if !is_draining => {
                    is_draining = true;
                    continue;
                }
            };
            match read {
                Ok(0) => return (LeanEnd::Client, String::new()),
                Ok(_) => {}
                // TLS without `close_notify`: frames mark where messages end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return (LeanEnd::Client, String::new());
                }
                Err(error) => return (LeanEnd::Broken, format!("read: {error}")),
            }
        }
    }

    async fn part<S>(&self, stream: &mut S, session: &mut Session, code: FaultCode, text: &'static str) -> End
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        session.end(Fault::new(code, text));
        self.write(stream, session).await.err().unwrap_or_else(|| (code.end(), text.to_owned()))
    }

    async fn write<S: AsyncWrite + Unpin>(&self, stream: &mut S, session: &mut Session) -> Result<(), End> {
        if session.output().is_empty() {
            return Ok(());
        }
        let broken = |error| (LeanEnd::Broken, format!("write: {error}"));
        let unread = |_| (LeanEnd::Unread, "the client does not read".to_owned());
        while !session.output().is_empty() {
            match timeout(self.limits.write_timeout, stream.write(session.output())).await.map_err(unread)? {
                Ok(0) => return Err((LeanEnd::Broken, "the client takes nothing more".to_owned())),
                Ok(count) => session.advance(count),
                Err(error) => return Err(broken(error)),
            }
        }
        // TLS holds back partial records.
        timeout(self.limits.write_timeout, stream.flush()).await.map_err(unread)?.map_err(broken)
    }
}

/// Completes when the credential is revoked.
async fn revoked(admitted: oneshot::Receiver<Option<Admitted>>) {
    match admitted.await {
        Ok(Some(admitted)) => admitted.revoked().await,
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// Waits until the server drains or is gone.
async fn told(draining: &mut watch::Receiver<bool>) {
    drop(draining.wait_for(|draining| *draining).await);
}

/// Bytes read that do not form a complete frame yet.
#[derive(Debug, Default)]
struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            let buffer = std::mem::take(&mut self.buffer);
            if buffer.len() <= 2 * READ_BYTES {
                SPARE.set(buffer);
            }
        }
    }

    async fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> io::Result<usize> {
        std::future::poll_fn(|cx| {
            self.make_room();
            let mut room = ReadBuf::new(&mut self.buffer[self.end..]);
            let polled = Pin::new(&mut *stream).poll_read(cx, &mut room);
            let count = room.filled().len();
            match polled {
                Poll::Ready(read) => {
                    self.end += count;
                    Poll::Ready(read.map(|()| count))
                }
                Poll::Pending => {
                    // So that a waiting connection holds no buffer.
                    self.consume(0);
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn make_room(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = SPARE.take();
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() < self.end + READ_BYTES {
            self.buffer.resize(self.end + READ_BYTES, 0);
        }
    }
}

/// Permit for a connection; released on drop.
struct Counted {
    games: Games,
    place: Place,
}

impl Counted {
    fn new(games: &Games, place: Place) -> Self {
        games.counts().lean_came();
        Self { games: games.clone(), place }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.games.counts().lean_left();
    }
}
