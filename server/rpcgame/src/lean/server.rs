//! Lean connections on sockets: accepting, distribution to threads, timeouts, shutdown.
//!
//! Nothing is read from a client while values wait to be written, so a slow client holds no more than its window
//! allows.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hosting::access::{Admitted, Authenticator, Challenge, Denied};
use hosting::{Acceptor, Client, Permit};
use quire_net::{Accept, QUIET_MAX, before, handshake, turned_on};
use quire_rpc::rustls::ServerConfig;
use quire_rpc::server::{CUT, Charge, ConnectionRegistry, ListedCaller, Memory};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

use super::session::Session;
use crate::counts::LeanEnd;
use crate::lean::frame::{Fault, FaultCode};
use crate::registry::{EndedGame, Games};
use crate::settings::LeanLimits;

/// Name of the protocol among open connections.
const USER_AGENT: &str = "lean protocol";
/// Size of a read.
const READ_BYTES: usize = 64 * 1024;
/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
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
    acceptor: Acceptor,
    limits: Arc<LeanLimits>,
    drain: Duration,
    /// Account of what connections hold.
    memory: Memory,
    connections: ConnectionRegistry,
}

/// End of a connection: reason and details.
type End = (LeanEnd, String);

impl Server {
    /// Ends of games are reported to `games`. `drain` is the time that a running game has when the server stops.
    pub fn new(games: Games, limits: LeanLimits, drain: Duration) -> Self {
        let acceptor = Acceptor::new("rpcgame.lean_connections", limits.connections_max.clone());
        Self {
            games,
            acceptor,
            limits: Arc::new(limits),
            drain,
            memory: Memory::new(usize::MAX, usize::MAX),
            connections: ConnectionRegistry::default(),
        }
    }

    /// Requires the credentials that `authenticator` does, and TLS if `tls` is set.
    #[must_use]
    pub fn guarded(self, authenticator: Authenticator, tls: Option<Arc<ServerConfig>>) -> Self {
        Self { acceptor: self.acceptor.guarded(authenticator, tls), ..self }
    }

    /// Charges what connections hold to this account.
    #[must_use]
    pub fn charged_to(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// Lists the server's connections in this registry.
    #[must_use]
    pub fn listed_in(self, connections: ConnectionRegistry) -> Self {
        Self { connections, ..self }
    }

    /// The games it serves, which also hold its counts.
    pub fn games(&self) -> &Games {
        &self.games
    }

    /// Accepts connections until `shutdown` is ready, on `workers` in turn (on this runtime if the list is empty); then
    /// running games may finish. A connection that is not done by then is cut off with the runtime.
    pub async fn serve(&self, listener: TcpListener, workers: Vec<Handle>, shutdown: impl Future<Output = ()>) {
        quire_net::accept(self, listener, &workers, shutdown, self.drain).await;
    }

    async fn serve_tls(
        &self,
        tls: &Arc<ServerConfig>,
        stream: TcpStream,
        peer: SocketAddr,
        permit: Option<&Permit>,
        draining: watch::Receiver<bool>,
    ) -> End {
        let allowed = if permit.is_some() { HANDSHAKE_TIMEOUT } else { REFUSAL_TIMEOUT };
        let leave = pin!(async {
            match permit {
                Some(permit) => permit.leave().await,
                None => std::future::pending().await,
            }
        });
        match before(handshake(tls, stream, allowed), leave).await {
            None => (LeanEnd::Limit, REPLACED.to_owned()),
            Some(Ok((stream, certificates))) => self.serve_one(stream, peer, certificates, permit, draining).await,
            Some(Err(error)) => (LeanEnd::Broken, error.to_string()),
        }
    }

    async fn serve_one<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        address: SocketAddr,
        certificates: Vec<Bytes>,
        permit: Option<&Permit>,
        draining: watch::Receiver<bool>,
    ) -> End {
        let session = Session::new(self.limits.session.clone());
        let charge = self.memory.charge(Some(address));
        let mut listed = self.connections.open(Some(address), USER_AGENT);
        let (stream, caller) = (listed.metered(stream), listed.caller());
        let mut connection = Connection { server: self, stream, session, input: Input::default(), charge };
        let Some(permit) = permit else {
            let fault = Fault::too_many_connections(self.limits.connections_max.get());
            connection.session.end(fault.clone());
            let _ = timeout(REFUSAL_TIMEOUT, connection.write()).await;
            return (LeanEnd::Superfluous, fault.to_string());
        };
        let mut revoked = None;
        if let Some(challenge) = self.acceptor.challenge(Some(address), certificates) {
            let (shown, admitted) = oneshot::channel();
            connection.session = connection.session.guarded(Box::new(admission(challenge, permit, shown)));
            revoked = Some(admitted);
        }
        let ended = {
            let running = pin!(connection.run(permit, draining));
            tokio::select! {
                end = listed.unless_cut(running) => Some(end),
                () = until_revoked(revoked, &caller) => None,
            }
        };
        let (code, text) = match ended {
            Some(Some(Err(end))) => return end,
            Some(Some(Ok(()))) => (FaultCode::Limit, CUT),
            Some(None) => (FaultCode::Limit, "an operator cut the connection"),
            None => (FaultCode::Denied, "the credential was revoked"),
        };
        // It may be its client that takes nothing.
        let ending = timeout(REFUSAL_TIMEOUT, connection.end(code, text)).await;
        ending.unwrap_or_else(|_| (code.end(), text.to_owned()))
    }
}

impl Accept for Server {
    type Permit = Option<Counted>;

    /// `None` for a connection that is only refused.
    async fn admit(&self, peer: SocketAddr) -> Option<Self::Permit> {
        let permit = self.acceptor.permit(&Client::at(Some(peer.ip())));
        Some(permit.map(|permit| Counted::new(&self.games, permit)))
    }

    async fn connection(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        counted: Self::Permit,
        draining: watch::Receiver<bool>,
    ) {
        let permit = counted.as_ref().map(|counted| &counted.permit);
        let (end, details) = match self.acceptor.tls() {
            None => self.serve_one(stream, peer, Vec::new(), permit, draining).await,
            // Boxed: plain connections need no room for TLS.
            Some(tls) => Box::pin(self.serve_tls(tls, stream, peer, permit, draining)).await,
        };
        self.games.counts().lean_ended(end);
        let reason = end.name();
        if matches!(end, LeanEnd::Client | LeanEnd::Stopping) {
            tracing::debug!(%peer, reason, details, "a lean connection was closed");
        } else {
            tracing::info!(%peer, reason, details, "a lean connection was closed");
        }
    }

    fn cannot_accept(&self, error: &io::Error) {
        self.acceptor.cannot_accept(error);
    }
}

/// Checks a session's token, and passes its credential on.
fn admission(
    challenge: Challenge,
    permit: &Permit,
    shown: oneshot::Sender<Option<Admitted>>,
) -> impl FnOnce(Option<&[u8]>) -> Result<(), String> + Send + 'static {
    let known = permit.known();
    move |token| match challenge.admit(token) {
        Ok(admitted) => {
            known.store(admitted.is_some(), Relaxed);
            // The connection waits for it; sending fails only if that has ended.
            drop(shown.send(admitted));
            Ok(())
        }
        Err(Denied::Missing) => Err("send a token of the scope play in a TOKEN frame before the HELLO".to_owned()),
        Err(denied) => Err(challenge.error_text(&denied)),
    }
}

/// Notes the client, and completes when its credential is revoked.
async fn until_revoked(admitted: Option<oneshot::Receiver<Option<Admitted>>>, caller: &ListedCaller) {
    let Some(admitted) = admitted else { return std::future::pending().await };
    match admitted.await {
        Ok(Some(admitted)) => {
            caller.note_client(&Client::Credential(Arc::clone(admitted.name())));
            admitted.revoked().await;
        }
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// A connection with its session.
struct Connection<'a, S> {
    server: &'a Server,
    stream: S,
    session: Session,
    input: Input,
    charge: Charge,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// Runs the connection to its end; `Ok` if it must be cut because it holds too much memory.
    async fn run(&mut self, permit: &Permit, mut draining: watch::Receiver<bool>) -> Result<(), End> {
        let Server { games, limits, drain, .. } = self.server;
        let mut active_at = Instant::now();
        let mut idle_at = active_at + limits.idle;
        // Set by a drain: the connection's end, if no game begins before.
        let mut stops_at = None;
        let mut is_leaving = false;
        loop {
            let mut rest = self.input.bytes();
            let before = rest.len();
            let received = self.session.receive(&mut rest);
            if rest.len() < before {
                active_at = Instant::now();
                idle_at = active_at + limits.idle;
            }
            let taken = before - rest.len();
            self.input.consume(taken);
            games.counts().lean_handled(self.session.take_messages());
            let (ended, last) = self.session.take_games_ended();
            if self.write().await?.is_none() {
                return Ok(());
            }
            if let Some((messages, sums)) = last {
                let last = EndedGame { group: "a lean connection".into(), sums, messages, at: SystemTime::now() };
                games.note_ended(ended, last);
            }
            received.map_err(|fault| (fault.code.end(), fault.to_string()))?;
            if stops_at.is_none() && *draining.borrow() {
                stops_at = Some(active_at + QUIET_MAX);
            }
            let between_games = self.session.is_between_games();
            if ended > 0 || !between_games {
                stops_at = stops_at.map(|_| active_at);
            }
            if between_games && stops_at.is_some_and(|at| at <= Instant::now()) {
                return Err(self.end(FaultCode::Stopping, "the server stops").await);
            }
            if is_leaving && between_games {
                return Err(self.end(FaultCode::Limit, REPLACED).await);
            }
            permit.set_busy(!between_games);
            // Frames that came while output was waiting are still there.
            if taken > 0 && !self.input.is_empty() {
                continue;
            }
            let held_bytes = self.held_bytes();
            let wakes_at = stops_at.filter(|_| between_games).map_or(idle_at, |at| idle_at.min(at));
            let read = tokio::select! {
                biased;
                read = self.charge.unless_cut(held_bytes, self.input.read(&mut self.stream)) => read,
                () = tokio::time::sleep_until(wakes_at) => {
                    if wakes_at < idle_at {
                        continue;
                    }
                    return Err(self.end(FaultCode::Idle, "no frame came for too long").await);
                }
                () = permit.leave(), if !is_leaving => {
                    is_leaving = true;
                    // A silent game under way has as long as when the server stops.
                    idle_at = idle_at.min(Instant::now() + *drain);
                    continue;
                }
                () = turned_on(&mut draining), if stops_at.is_none() => {
                    stops_at = Some(active_at + QUIET_MAX);
                    continue;
                }
            };
            match read {
                None => return Ok(()),
                Some(Ok(0)) => return Err((LeanEnd::Client, String::new())),
                Some(Ok(_)) => {}
                // TLS without `close_notify`: frames mark where messages end.
                Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err((LeanEnd::Client, String::new()));
                }
                Some(Err(error)) => return Err((LeanEnd::Broken, format!("read: {error}"))),
            }
        }
    }

    /// Memory held for the client while the connection waits.
    fn held_bytes(&self) -> usize {
        self.input.held_bytes() + self.session.held_bytes()
    }

    /// Ends the connection with an error for its client.
    async fn end(&mut self, code: FaultCode, text: &'static str) -> End {
        self.session.end(Fault::new(code, text));
        self.write().await.err().unwrap_or_else(|| (code.end(), text.to_owned()))
    }

    /// Writes the session's output; `None` if the connection must be cut meanwhile.
    async fn write(&mut self) -> Result<Option<()>, End> {
        if self.session.output().is_empty() {
            return Ok(Some(()));
        }
        let allowed = self.server.limits.write_timeout;
        let broken = |error| (LeanEnd::Broken, format!("write: {error}"));
        let unread = |_| (LeanEnd::Unread, "the client does not read".to_owned());
        let held_bytes = self.held_bytes();
        while !self.session.output().is_empty() {
            let write = timeout(allowed, self.stream.write(self.session.output()));
            let Some(written) = self.charge.unless_cut(held_bytes, write).await else { return Ok(None) };
            match written.map_err(unread)? {
                Ok(0) => return Err((LeanEnd::Broken, "the client takes nothing more".to_owned())),
                Ok(count) => self.session.advance(count),
                Err(error) => return Err(broken(error)),
            }
        }
        // TLS holds back partial records.
        timeout(allowed, self.stream.flush()).await.map_err(unread)?.map_err(broken).map(Some)
    }
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

    /// Memory held while a read waits: an empty buffer is given back then.
    fn held_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.buffer.capacity() }
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

/// Permit of a counted connection; released on drop.
pub struct Counted {
    games: Games,
    permit: Permit,
}

impl Counted {
    fn new(games: &Games, permit: Permit) -> Self {
        games.counts().lean_came();
        Self { games: games.clone(), permit }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.games.counts().lean_left();
    }
}
