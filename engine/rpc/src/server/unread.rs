//! Buffered bytes of a connection's streams, in either direction; feeds the memory account.

use super::slot::{Phase, Slot};

/// Bytes a connection moves between two counts.
const MOVED_BYTES: u64 = 256 * 1024;

/// The last count of the streams' bytes.
#[derive(Default)]
pub(super) struct Unread {
    bytes: usize,
    moved_before: u64,
}

impl Unread {
    /// Bytes held by the calls in `slots`. Recounted when the connection has moved enough bytes since, while any are
    /// held, or when one is blocked.
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
