//! What the streams of a connection hold, for the account of memory: bytes that wait for their reader, on either side.
//!
//! Must not know the connection, nor the account.
//!
//! Implements: no specification.

use super::slot::{Phase, Slot};

/// Bytes that a connection moves between two counts of its streams.
const MOVED_BYTES: u64 = 256 * 1024;

/// What the streams held when they were last counted.
#[derive(Default)]
pub(super) struct Unread {
    bytes: usize,
    moved_before: u64,
}

impl Unread {
    /// Bytes held by the calls in `slots`. They are counted again when the connection has moved enough bytes since, of all
    /// that it has read and written, and when one of them waits.
    pub(super) fn count(&mut self, slots: &[Slot], moved: u64, is_blocked: bool) -> usize {
        let is_due = moved.saturating_sub(self.moved_before) >= MOVED_BYTES;
        if is_due || self.bytes > 0 || is_blocked {
            let streams = slots.iter().map(|slot| match &slot.phase {
                Phase::Active(active) => active.feed.unread_bytes() + active.running.held_bytes(),
                Phase::Free | Phase::Gathering(_) | Phase::Discarding(_) => 0,
            });
            *self = Self { bytes: streams.sum(), moved_before: moved };
        }
        self.bytes
    }
}
