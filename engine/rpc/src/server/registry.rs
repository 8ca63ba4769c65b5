//! Open connections, for operators to look at and to cut.
//!
//! A connection writes its figures once a turn, however many calls the turn had; only listing, opening and closing take
//! the registry's lock.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
#[cfg(feature = "channelz")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use quire_net::Client;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

#[cfg(feature = "channelz")]
use super::shown::ShownSocket;

/// Close reason of a connection that an operator cut.
pub(crate) const CUT: &str = "cut: by an operator";

/// Longest user agent that is kept.
const USER_AGENT_BYTES_MAX: usize = 256;

/// Open connections of one or several servers; clones are the same registry.
#[derive(Clone, Default)]
pub struct ConnectionRegistry(Arc<Inner>);

#[derive(Default)]
struct Inner {
    last: AtomicU64,
    connections: Mutex<HashMap<u64, Arc<ConnectionState>>>,
}

/// An open connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenConnection {
    /// Unique within the registry.
    pub id: u64,
    /// The peer's address, if the transport has one.
    pub address: Option<SocketAddr>,
    /// Client of the last call: a credential's name if it had one, else the address.
    pub client: Client,
    /// User agent of a recent call, cut to 256 bytes; empty if there is none.
    pub user_agent: String,
    /// Calls that wait for something; 0 for a protocol other than HTTP.
    pub calls_in_flight: usize,
    /// Bytes read, after decryption.
    pub bytes_read: u64,
    /// Bytes written, before encryption.
    pub bytes_written: u64,
    /// Unfinished messages, and answers that wait for their reader.
    pub buffered_bytes: usize,
    /// Time since it was accepted.
    pub age: Duration,
    /// Time since the last byte in either direction.
    pub idle: Duration,
}

impl ConnectionRegistry {
    /// The open connections, in the order of their ids.
    pub fn list(&self) -> Vec<OpenConnection> {
        let mut open: Vec<_> = self.lock().values().cloned().collect();
        open.sort_unstable_by_key(|connection| connection.id);
        let now = Instant::now();
        open.iter().map(|connection| connection.shown(now)).collect()
    }

    /// Ends a connection at once, with its calls; false if none has this id.
    pub fn cut(&self, id: u64) -> bool {
        let Some(connection) = self.lock().get(&id).cloned() else { return false };
        connection.is_cut.store(true, Relaxed);
        connection.task.wake();
        true
    }

    /// Adds a connection until the result is dropped. A server of another protocol than HTTP gives the protocol's name as
    /// user agent.
    pub fn open(&self, address: Option<SocketAddr>, user_agent: &str) -> ListedConnection {
        let id = self.0.last.fetch_add(1, Relaxed) + 1;
        let state = Arc::new(ConnectionState::new(id, address, user_agent));
        self.lock().insert(id, Arc::clone(&state));
        ListedConnection { registry: self.clone(), state, registered: None }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<ConnectionState>>> {
        lock(&self.0.connections)
    }
}

impl fmt::Debug for ConnectionRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionRegistry({} are open)", self.lock().len())
    }
}

/// A connection's place in the registry, removed on drop.
#[derive(Debug)]
pub struct ListedConnection {
    registry: ConnectionRegistry,
    state: Arc<ConnectionState>,
    /// The waker that a cut wakes.
    registered: Option<Waker>,
}

impl ListedConnection {
    pub(crate) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Counts the bytes of `stream` as the connection's.
    pub fn metered<S>(&self, stream: S) -> Metered<S> {
        Metered { stream, state: Arc::clone(&self.state), bytes_read: 0, bytes_written: 0 }
    }

    /// Names the caller later.
    pub fn caller(&self) -> ListedCaller {
        ListedCaller(Arc::clone(&self.state))
    }

    /// Serves the connection by `future`; `None` if it is cut before that completes.
    pub async fn unless_cut<F: Future>(&mut self, mut future: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| if self.is_cut(cx.waker()) { Poll::Ready(None) } else { future.as_mut().poll(cx).map(Some) }).await
    }

    /// True if the connection must end; else its task is woken when it must.
    #[inline]
    fn is_cut(&mut self, task: &Waker) -> bool {
        // A task keeps its waker, so that this is rare.
        if !self.registered.as_ref().is_some_and(|known| known.will_wake(task)) {
            self.state.task.register(task);
            self.registered = Some(task.clone());
        }
        self.state.is_cut.load(Relaxed)
    }
}

impl Drop for ListedConnection {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.state.id);
    }
}

/// The caller of a listed connection.
#[derive(Debug)]
pub struct ListedCaller(Arc<ConnectionState>);

impl ListedCaller {
    /// Notes the client that the caller has shown to be.
    #[inline]
    pub fn note_client(&self, client: &Client) {
        self.0.note_client(client);
    }
}

/// A connection's stream whose bytes are counted; made by [`ListedConnection::metered`].
#[derive(Debug)]
pub struct Metered<S> {
    stream: S,
    state: Arc<ConnectionState>,
    bytes_read: u64,
    bytes_written: u64,
}

impl<S> Metered<S> {
    fn note(&self) {
        let turn = Turn {
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            calls_in_flight: 0,
            buffered_bytes: 0,
        };
        self.state.note(turn, Instant::now());
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, into);
        let read = into.filled().len() - before;
        if read > 0 {
            self.bytes_read += read as u64;
            self.note();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            self.bytes_written += written as u64;
            self.note();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Figures of a connection at the end of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) calls_in_flight: usize,
    pub(crate) buffered_bytes: usize,
}

/// A connection's state, written by its task alone.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    id: u64,
    address: Option<SocketAddr>,
    opened_at: Instant,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    calls_in_flight: AtomicUsize,
    buffered_bytes: AtomicUsize,
    /// Time of the last byte, in milliseconds after `opened_at`.
    active_ms: AtomicU64,
    caller: Mutex<Described>,
    /// Place of the name of the credential in `caller`, which keeps it; 0 without one.
    named_at: AtomicUsize,
    is_cut: AtomicBool,
    task: AtomicWaker,
    /// Set if the channelz service shows the connection's server.
    #[cfg(feature = "channelz")]
    pub(crate) socket: OnceLock<Box<ShownSocket>>,
}

/// The caller, as far as it is known.
#[derive(Debug)]
struct Described {
    client: Client,
    user_agent: Box<str>,
}

impl ConnectionState {
    fn new(id: u64, address: Option<SocketAddr>, user_agent: &str) -> Self {
        let client = Client::at(address.map(|address| address.ip()));
        let caller = Described { client, user_agent: user_agent.into() };
        Self {
            id,
            address,
            opened_at: Instant::now(),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            calls_in_flight: AtomicUsize::new(0),
            buffered_bytes: AtomicUsize::new(0),
            active_ms: AtomicU64::new(0),
            caller: Mutex::new(caller),
            named_at: AtomicUsize::new(0),
            is_cut: AtomicBool::new(false),
            task: AtomicWaker::new(),
            #[cfg(feature = "channelz")]
            socket: OnceLock::new(),
        }
    }

    /// Notes the figures of a turn that ends at `now`.
    #[inline]
    pub(crate) fn note(&self, turn: Turn, now: Instant) {
        let Turn { bytes_read, bytes_written, calls_in_flight, buffered_bytes } = turn;
        if bytes_read != self.bytes_read.load(Relaxed) || bytes_written != self.bytes_written.load(Relaxed) {
            self.bytes_read.store(bytes_read, Relaxed);
            self.bytes_written.store(bytes_written, Relaxed);
            let active = now.saturating_duration_since(self.opened_at);
            self.active_ms.store(u64::try_from(active.as_millis()).unwrap_or(u64::MAX), Relaxed);
        }
        self.calls_in_flight.store(calls_in_flight, Relaxed);
        self.buffered_bytes.store(buffered_bytes, Relaxed);
    }

    /// Notes the client of the last call, which is mostly that of the call before.
    #[inline]
    pub(crate) fn note_client(&self, client: &Client) {
        let named_at = match client {
            Client::Credential(name) => name.as_ptr().addr(),
            Client::Address(_) | Client::Unknown => 0,
        };
        if named_at != self.named_at.load(Relaxed) {
            self.set_client(client, named_at);
        }
    }

    #[cold]
    fn set_client(&self, client: &Client, named_at: usize) {
        lock(&self.caller).client = client.clone();
        self.named_at.store(named_at, Relaxed);
    }

    /// Notes a call's user agent; `noted` is the caller's copy of the last one.
    #[inline]
    pub(crate) fn note_user_agent(&self, user_agent: &[u8], noted: &mut Box<[u8]>) {
        let kept = &user_agent[..user_agent.len().min(USER_AGENT_BYTES_MAX)];
        if *kept != **noted {
            *noted = kept.into();
            lock(&self.caller).user_agent = String::from_utf8_lossy(kept).into();
        }
    }

    pub(crate) fn shown(&self, now: Instant) -> OpenConnection {
        let caller = lock(&self.caller);
        let (client, user_agent) = (caller.client.clone(), caller.user_agent.to_string());
        drop(caller);
        let age = now.saturating_duration_since(self.opened_at);
        OpenConnection {
            id: self.id,
            address: self.address,
            client,
            user_agent,
            calls_in_flight: self.calls_in_flight.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            buffered_bytes: self.buffered_bytes.load(Relaxed),
            age,
            idle: age.saturating_sub(Duration::from_millis(self.active_ms.load(Relaxed))),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
