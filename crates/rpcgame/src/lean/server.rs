//! Lean connections on sockets: accepted, shared out to threads, timed, ended.
//!
//! While a client does not take its values nothing more is read from it, so a slow one holds what its window allows
//! and no more. Must not know what a frame says.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hosting::{Client, Share, Shares};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::fault::{Fault, FaultCode};
use super::session::Session;
use crate::counts::LeanEnd;
use crate::registry::Games;
use crate::settings::LeanLimits;

/// When `accept` fails for want of descriptors, trying again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Room for a read.
const READ_BYTES: usize = 64 * 1024;
/// What is said to a connection that is refused must be taken at once.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(500);

thread_local! {
    /// For reads of connections that hold no part of a frame: those that are idle hold nothing.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Serves the lean protocol; clones share the limits.
#[derive(Clone, Debug)]
pub struct Server {
    games: Games,
    connections: Shares,
    limits: Arc<LeanLimits>,
    drain: Duration,
}

/// Why a connection ended, with what there is to say beside its name.
type End = (LeanEnd, String);

impl Server {
    /// Serves; the games' ends are told to `games`. `drain` is what a game under way has when the server stops.
    pub fn new(games: Games, limits: LeanLimits, drain: Duration) -> Self {
        Self { games, connections: Shares::new(limits.connections_max), limits: Arc::new(limits), drain }
    }

    /// The games it serves, which count what happens here as well.
    pub fn games(&self) -> &Games {
        &self.games
    }

    /// Accepts connections until `shutdown` is ready, on `workers` in turn (on this runtime if the list is empty); then
    /// games under way may end.
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
            // What it costs when it fails is some milliseconds.
            let _ = stream.set_nodelay(true);
            let (server, draining, alive) = (self.clone(), draining.clone(), alive.clone());
            let Some(worker) = workers.get(turn % workers.len().max(1)) else {
                tokio::spawn(async move { server.connection(stream, draining, alive).await });
                continue;
            };
            turn = turn.wrapping_add(1);
            // A stream belongs to the reactor of the runtime it was made on, so it is made again over there.
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
        let mut session = Session::new(self.limits.session.clone());
        let peer = stream.peer_addr().ok();
        let client = Client::at(peer.map(|peer| peer.ip()));
        let place = self.connections.take(client).map(|share| Place::new(&self.games, share));
        let (end, details) = if place.is_some() {
            self.run(&stream, &mut session, draining).await
        } else {
            let fault = Fault::too_many_connections(self.limits.connections_max);
            session.end(fault.clone());
            let _ = timeout(REFUSAL_TIMEOUT, write(&stream, &mut session)).await;
            (LeanEnd::Superfluous, fault.to_string())
        };
        self.games.counts().lean_ended(end);
        let reason = end.name();
        if matches!(end, LeanEnd::Client | LeanEnd::Stopping) {
            tracing::debug!(?peer, reason, details, "a lean connection was closed");
        } else {
            tracing::info!(?peer, reason, details, "a lean connection was closed");
        }
        drop(place);
        drop(alive);
    }

    /// Runs a connection to its end.
    async fn run(&self, stream: &TcpStream, session: &mut Session, mut draining: watch::Receiver<bool>) -> End {
        let mut input = Input::default();
        let mut idle_at = Instant::now() + self.limits.idle;
        let mut is_draining = false;
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
            // Frames that came while there was output to be written are still there.
            if taken > 0 && !input.is_empty() {
                continue;
            }
            let read = tokio::select! {
                biased;
                read = input.read(stream) => read,
                () = tokio::time::sleep_until(idle_at) => {
                    return self.part(stream, session, FaultCode::Idle, "no frame came for too long").await;
                }
                () = told(&mut draining), if !is_draining => {
                    is_draining = true;
                    continue;
                }
            };
            match read {
                Ok(0) => return (LeanEnd::Client, String::new()),
                Ok(_) => {}
                Err(error) => return (LeanEnd::Broken, format!("read: {error}")),
            }
        }
    }

    async fn part(&self, stream: &TcpStream, session: &mut Session, code: FaultCode, text: &'static str) -> End {
        session.end(Fault::new(code, text));
        self.write(stream, session).await.err().unwrap_or_else(|| (code.end(), text.to_owned()))
    }

    async fn write(&self, stream: &TcpStream, session: &mut Session) -> Result<(), End> {
        while !session.output().is_empty() {
            match stream.try_write(session.output()) {
                Ok(0) => return Err((LeanEnd::Broken, "the client takes nothing more".to_owned())),
                Ok(count) => session.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let deadline = Instant::now() + self.limits.write_timeout;
                    match timeout_at(deadline, stream.writable()).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => return Err((LeanEnd::Broken, format!("write: {error}"))),
                        Err(_) => return Err((LeanEnd::Unread, "the client does not read".to_owned())),
                    }
                }
                Err(error) => return Err((LeanEnd::Broken, format!("write: {error}"))),
            }
        }
        Ok(())
    }
}

/// The server stops, or is gone.
async fn told(draining: &mut watch::Receiver<bool>) {
    drop(draining.wait_for(|draining| *draining).await);
}

/// Says a last word.
async fn write(stream: &TcpStream, session: &mut Session) -> io::Result<()> {
    while !session.output().is_empty() {
        stream.ready(Interest::WRITABLE).await?;
        match stream.try_write(session.output()) {
            Ok(count) => session.advance(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What was read and is not yet a whole frame.
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

    async fn read(&mut self, stream: &TcpStream) -> io::Result<usize> {
        loop {
            stream.readable().await?;
            // Only now, so that who waits holds nothing.
            self.make_room();
            match stream.try_read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.consume(0),
                Err(error) => return Err(error),
            }
        }
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

/// A connection's place among those allowed; given back when it is dropped.
struct Place {
    games: Games,
    _share: Share,
}

impl Place {
    fn new(games: &Games, share: Share) -> Self {
        games.counts().lean_came();
        Self { games: games.clone(), _share: share }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.games.counts().lean_left();
    }
}
