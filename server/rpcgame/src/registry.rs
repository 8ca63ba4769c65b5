//! Registry of the running games by group: their limit, and their expiry.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use hosting::{Client, Share, Shares};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

use crate::counts::Counts;
use crate::game::{Answer, EARLY_BYTES, Game, Sums, Ticket, Turn};
use crate::refusal::Refusal;
use crate::settings::{GameLimits, Group};

/// The caller, as far as it determines the game.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'a> {
    /// The name of the game, if the caller gives one.
    pub game: Option<&'a str>,
    /// Something that lives as long as the caller's connection.
    pub connection: Option<&'a Connection>,
    /// The caller's address.
    pub address: Option<IpAddr>,
}

/// Something that lives as long as a connection.
pub type Connection = Arc<dyn Any + Send + Sync>;

/// Maximum length of a game's name.
pub const GAME_NAME_BYTES_MAX: usize = 128;

#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Named(Box<str>),
    /// Memory address of the connection's handle; the room's reference prevents reuse.
    Connection(usize),
    Address(IpAddr),
    Server,
}

impl Key {
    /// Description for operators.
    fn text(&self) -> Box<str> {
        match self {
            Self::Named(name) => name.clone(),
            Self::Connection(_) => "a connection".into(),
            Self::Address(address) => address.to_string().into(),
            Self::Server => "the server".into(),
        }
    }
}

/// A game's room, and the connection it ends with.
#[derive(Debug)]
struct Entry {
    room: Arc<Room>,
    connection: Option<Weak<dyn Any + Send + Sync>>,
    idle_since: Instant,
    /// Its share of the games' limit.
    _share: Share,
}

impl Entry {
    fn is_left(&mut self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.strong_count() == 0)
    }
}

/// A game that a client ended.
#[derive(Clone, Debug)]
pub struct EndedGame {
    /// The game's name, or the reason for its players being in one game.
    pub group: Box<str>,
    /// Its checksums.
    pub sums: Sums,
    /// Its messages.
    pub messages: u64,
    /// Its end.
    pub at: SystemTime,
}

/// Ended games that are kept.
const RECENT_MAX: usize = 20;

#[derive(Debug)]
struct Shared {
    limits: GameLimits,
    entries: Mutex<HashMap<Key, Entry>>,
    shares: Shares,
    waiting_bytes: Arc<AtomicUsize>,
    ended: watch::Sender<u64>,
    /// Games that ended last, oldest first.
    recent: Mutex<VecDeque<EndedGame>>,
    counts: Counts,
}

/// All games of a server; clones share them.
#[derive(Clone, Debug)]
pub struct Games {
    shared: Arc<Shared>,
}

impl Games {
    /// Creates an empty registry.
    pub fn new(limits: GameLimits) -> Self {
        let shared = Shared {
            entries: Mutex::default(),
            shares: Shares::new(limits.games_max.clone()),
            limits,
            waiting_bytes: Arc::default(),
            ended: watch::Sender::new(0),
            recent: Mutex::default(),
            counts: Counts::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The limits.
    pub fn limits(&self) -> &GameLimits {
        &self.shared.limits
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.shared.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number shared by clones, and unique among the process's registries while these live.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Number of running games: without those that are over or whose connection has closed.
    pub fn count(&self) -> usize {
        let mut entries = self.lock();
        give_up(&mut entries, Entry::is_left);
        entries.len()
    }

    /// Current cost of waiting messages.
    pub fn waiting_bytes(&self) -> usize {
        self.shared.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Counts of the games' events.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Number of games ended by `Done`, with changes.
    pub fn ended(&self) -> watch::Receiver<u64> {
        self.shared.ended.subscribe()
    }

    /// Ends the caller's game. The caller's next message begins another one.
    pub fn end(&self, caller: Caller<'_>) -> Result<Sums, Refusal> {
        let (key, _) = self.key(caller)?;
        let mut entries = self.lock();
        // Closed before anyone can find another room for the group.
        let closed = entries.remove(&key).map(|entry| entry.room.close());
        drop(entries);
        let (sums, messages) = closed.unwrap_or_else(|| (Sums::of_nothing(), 0));
        self.note_ended(1, EndedGame { group: key.text(), sums, messages, at: SystemTime::now() });
        Ok(sums)
    }

    /// Records games that ended, of which `last` was the last.
    pub(crate) fn note_ended(&self, games: u64, last: EndedGame) {
        let mut recent = self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(last);
        drop(recent);
        self.shared.ended.send_modify(|ended| *ended += games);
    }

    /// Games that ended last, newest first. Of those that end together on one lean connection, the last is kept.
    pub fn recent(&self) -> Vec<EndedGame> {
        self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }

    /// The room of the caller's game; if there is none, a new one, charged to the client.
    pub fn room(&self, caller: Caller<'_>, client: impl FnOnce() -> Client) -> Result<Arc<Room>, Refusal> {
        let (key, connection) = self.key(caller)?;
        let mut entries = self.lock();
        if let Some(entry) = entries.get(&key) {
            return Ok(Arc::clone(&entry.room));
        }
        let client = client();
        let share = self.shared.shares.take(client.clone()).or_else(|| {
            give_up(&mut entries, Entry::is_left);
            self.shared.shares.take(client)
        });
        let share = share.ok_or(Refusal::TooManyGames { games_max: self.shared.limits.games_max.get() })?;
        let room = Arc::new(Room::new(&self.shared.limits, Arc::clone(&self.shared.waiting_bytes)));
        let connection = connection.map(Arc::downgrade);
        let entry = Entry { room: Arc::clone(&room), connection, idle_since: Instant::now(), _share: share };
        entries.insert(key, entry);
        Ok(room)
    }

    fn key<'a>(&self, caller: Caller<'a>) -> Result<(Key, Option<&'a Connection>), Refusal> {
        if let Some(name) = caller.game {
            let (bytes, bytes_max) = (name.len(), GAME_NAME_BYTES_MAX);
            if bytes == 0 || bytes > bytes_max {
                return Err(Refusal::GameName { bytes, bytes_max });
            }
            return Ok((Key::Named(name.into()), None));
        }
        Ok(match (self.shared.limits.group, caller.connection, caller.address) {
            (Group::Connection, Some(connection), _) => {
                (Key::Connection(Arc::as_ptr(connection).cast::<()>().addr()), Some(connection))
            }
            (Group::Address, _, Some(address)) => (Key::Address(address), None),
            _ => (Key::Server, None),
        })
    }

    /// Closes games whose connection is gone or that were idle for too long.
    pub fn expire(&self) {
        let (now, idle) = (Instant::now(), self.shared.limits.idle);
        give_up(&mut self.lock(), |entry| {
            if entry.room.take_touched() {
                entry.idle_since = now;
            }
            entry.is_left() || now.duration_since(entry.idle_since) >= idle
        });
    }

    /// Calls [`Games::expire`] periodically, until it is dropped.
    pub async fn keep_expiring(&self) {
        loop {
            tokio::time::sleep((self.shared.limits.idle / 4).max(EXPIRE_PAUSE_MIN)).await;
            self.expire();
        }
    }
}

/// Closes the rooms of games that are over.
fn give_up(entries: &mut HashMap<Key, Entry>, mut is_over: impl FnMut(&mut Entry) -> bool) {
    entries.retain(|_, entry| {
        let is_over = is_over(entry);
        if is_over {
            entry.room.close();
        }
        !is_over
    });
}

/// Minimum pause, however short the idle time is.
const EXPIRE_PAUSE_MIN: Duration = Duration::from_millis(10);

type Outcome = Result<u64, Refusal>;

impl Answer for oneshot::Sender<Outcome> {
    fn report(self, outcome: Outcome) {
        // If the caller has left, the message is gone or its value is dropped.
        drop(self.send(outcome));
    }
}

#[derive(Debug, Default)]
struct State {
    game: Game<oneshot::Sender<Outcome>>,
    /// True if something happened since the last check.
    is_touched: bool,
    /// True once closed; callers find a new room.
    is_closed: bool,
}

/// One group's game.
#[derive(Debug)]
pub struct Room {
    state: Mutex<State>,
    window_messages: u64,
    wait: Duration,
    waiting_bytes: Arc<AtomicUsize>,
    waiting_bytes_max: usize,
}

/// Result of trying a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It was handled, with this value.
    Handled(u64),
    /// It has to wait for others: see [`Room::wait_for_turn`].
    Early,
    /// It was not handled.
    Refused(Refusal),
    /// The room was closed: the caller has to find another.
    Closed,
}

impl Room {
    pub(super) fn new(limits: &GameLimits, waiting_bytes: Arc<AtomicUsize>) -> Self {
        Self {
            state: Mutex::default(),
            window_messages: limits.window_messages,
            wait: limits.wait,
            waiting_bytes,
            waiting_bytes_max: limits.waiting_bytes_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Handles a message if it is the next.
    #[inline]
    pub fn attempt(&self, serial: u64, name: &[u8], count: u64) -> Attempt {
        self.handle_if_next(serial, |game| game.handle(name, count))
    }

    /// Handles messages with consecutive serials if the first is the next, and adds their values.
    pub fn attempt_all<'a>(
        &self,
        first_serial: u64,
        messages: impl Iterator<Item = (&'a [u8], u64)>,
        mut value: impl FnMut(u64),
    ) -> Attempt {
        self.handle_if_next(first_serial, |game| {
            messages.for_each(|(name, count)| value(game.handle(name, count)));
            0
        })
    }

    #[inline]
    fn handle_if_next(&self, serial: u64, handle: impl FnOnce(&mut Game<oneshot::Sender<Outcome>>) -> u64) -> Attempt {
        let mut state = self.lock();
        if state.is_closed {
            return Attempt::Closed;
        }
        match state.game.turn(serial, self.window_messages) {
            Ok(Turn::Now) => {
                state.is_touched = true;
                let value = handle(&mut state.game);
                self.release(state.game.catch_up());
                Attempt::Handled(value)
            }
            Ok(Turn::Later) => Attempt::Early,
            Err(refusal) => Attempt::Refused(refusal),
        }
    }

    /// Keeps an early message. The returned future waits for its value; dropping it removes the message. `None` if the
    /// room was closed.
    pub fn wait_for_value(self: &Arc<Self>, serial: u64, name: &[u8], count: u64) -> Result<Option<Waiting>, Refusal> {
        self.wait_with(serial, name.len(), |game, answer| game.keep(serial, name, count, answer))
    }

    /// Queues a caller that has messages from this serial on; its turn is reported with the serial as value. `None` if
    /// the room was closed.
    pub fn wait_for_turn(self: &Arc<Self>, serial: u64) -> Result<Option<Waiting>, Refusal> {
        self.wait_with(serial, 0, |game, answer| game.keep_turn(serial, answer))
    }

    fn wait_with(
        self: &Arc<Self>,
        serial: u64,
        name_bytes: usize,
        keep: impl FnOnce(&mut Game<oneshot::Sender<Outcome>>, oneshot::Sender<Outcome>) -> Ticket,
    ) -> Result<Option<Waiting>, Refusal> {
        let mut state = self.lock();
        if state.is_closed {
            return Ok(None);
        }
        let missing = state.game.next();
        // Earlier messages may have come since the caller looked.
        let turn = state.game.turn(serial, self.window_messages)?;
        let (bytes, bytes_max) = (name_bytes + EARLY_BYTES, self.waiting_bytes_max);
        if self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > bytes_max {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refusal::NoRoomToWait { missing, bytes_max });
        }
        state.is_touched = true;
        let (answer, outcome) = oneshot::channel();
        let ticket = keep(&mut state.game, answer);
        if turn == Turn::Now {
            self.release(state.game.catch_up());
        }
        drop(state);
        Ok(Some(Waiting { room: Arc::clone(self), ticket, outcome }))
    }

    pub(super) fn take_touched(&self) -> bool {
        let mut state = self.lock();
        // Waiting callers keep the game alive, however long nothing else happens.
        std::mem::take(&mut state.is_touched) || state.game.waiting() > 0
    }

    /// Ends the game and closes the room.
    pub(super) fn close(&self) -> (Sums, u64) {
        let mut state = self.lock();
        state.is_closed = true;
        let messages = state.game.handled();
        let (sums, bytes) = state.game.end();
        drop(state);
        self.release(bytes);
        (sums, messages)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let bytes = self.lock().game.end().1;
        self.release(bytes);
    }
}

/// A message that waits.
#[derive(Debug)]
pub struct Waiting {
    room: Arc<Room>,
    ticket: Ticket,
    outcome: oneshot::Receiver<Outcome>,
}

impl Waiting {
    /// Waits until the message was handled, or for as long as a message may wait.
    pub async fn outcome(mut self) -> Outcome {
        let wait = self.room.wait;
        if let Ok(Ok(outcome)) = timeout(wait, &mut self.outcome).await {
            return outcome;
        }
        let missing = self.room.lock().game.next();
        Err(Refusal::Missing { missing, wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let bytes = self.room.lock().game.forget(self.ticket);
        self.room.release(bytes);
    }
}
