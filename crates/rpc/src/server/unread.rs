//! What a connection holds, for the account of memory: bytes that wait for their reader, on either side.
//!
//! Must not know the account.
//!
//! Implements: no specification.

use super::calls::Calls;
use super::slot::Phase;

/// Bytes that a connection moves between two counts of its streams.
const MOVED_BYTES: u64 = 256 * 1024;

/// What the streams held when they were last counted.
#[derive(Default)]
pub(super) struct Unread {
    bytes: usize,
    moved_before: u64,
}

impl Calls {
    /// Bytes held now. `moved` counts all bytes that the connection has read and written; the streams are counted again
    /// when it has grown, or when one of them waits.
    pub(super) fn held_bytes(&mut self, moved: u64) -> usize {
        let is_due = moved.saturating_sub(self.unread.moved_before) >= MOVED_BYTES;
        if is_due || self.unread.bytes > 0 || !self.blocked.is_empty() {
            let streams = self.slots.iter().map(|slot| match &slot.phase {
                Phase::Active(active) => active.feed.unread_bytes() + active.running.held_bytes(),
                Phase::Free | Phase::Gathering(_) | Phase::Discarding(_) => 0,
            });
            self.unread = Unread { bytes: streams.sum(), moved_before: moved };
        }
        let queued = self.connection.queued_bytes_total() + self.connection.output().len();
        queued + self.gathered_bytes + self.unread.bytes
    }
}
