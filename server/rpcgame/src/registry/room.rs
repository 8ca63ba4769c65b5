//! A room shared by the callers of a group: their game under a lock held for one message or one frame, never across an
//! await.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::checksum::Sums;
use crate::game::{Answer, EARLY_BYTES, Game, Ticket, Turn};
use crate::refusal::Refusal;
use crate::settings::GameLimits;

type Outcome = Result<u64, Refusal>;

impl Answer for oneshot::Sender<Outcome> {
    fn tell(self, outcome: Outcome) {
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
        let mut state = self.lock();
        if state.is_closed {
            return Attempt::Closed;
        }
        match state.game.turn(serial, self.window_messages) {
            Ok(Turn::Now) => {
                state.is_touched = true;
                let value = state.game.handle(name, count);
                self.release(state.game.catch_up());
                Attempt::Handled(value)
            }
            Ok(Turn::Later) => Attempt::Early,
            Err(refusal) => Attempt::Refused(refusal),
        }
    }

    /// Handles messages with consecutive serials if the first is the next, and adds their values.
    pub fn attempt_all<'a>(
        &self,
        first_serial: u64,
        messages: impl Iterator<Item = (&'a [u8], u64)>,
        mut value: impl FnMut(u64),
    ) -> Attempt {
        let mut state = self.lock();
        if state.is_closed {
            return Attempt::Closed;
        }
        match state.game.turn(first_serial, self.window_messages) {
            Ok(Turn::Now) => {
                state.is_touched = true;
                for (name, count) in messages {
                    value(state.game.handle(name, count));
                }
                self.release(state.game.catch_up());
                Attempt::Handled(0)
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
        let (answer, told) = oneshot::channel();
        let ticket = keep(&mut state.game, answer);
        if turn == Turn::Now {
            self.release(state.game.catch_up());
        }
        drop(state);
        Ok(Some(Waiting { room: Arc::clone(self), ticket, told }))
    }

    /// The checksums so far, and the number of messages they cover.
    pub fn so_far(&self) -> (Sums, u64) {
        let state = self.lock();
        (state.game.sums(), state.game.handled())
    }

    pub(super) fn take_touched(&self) -> bool {
        let mut state = self.lock();
        // Waiting callers keep the game alive, however long nothing else happens.
        std::mem::take(&mut state.is_touched) || state.game.waiting() > 0
    }

    /// Ends the game and closes the room.
    pub(super) fn close(&self) -> Sums {
        let mut state = self.lock();
        state.is_closed = true;
        let (sums, bytes) = state.game.end();
        drop(state);
        self.release(bytes);
        sums
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
    told: oneshot::Receiver<Outcome>,
}

impl Waiting {
    /// Waits until the message was handled, or for as long as a message may wait.
    pub async fn outcome(mut self) -> Outcome {
        let wait = self.room.wait;
        if let Ok(Ok(outcome)) = timeout(wait, &mut self.told).await {
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
