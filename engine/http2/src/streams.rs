//! Open streams: a slab of recycled slots and a look-up by identifier (RFC 9113 section 5.1).
//!
//! Identifiers grow, so live ones nearly always differ in their low bits: a ring of slot numbers is indexed without
//! hashing. A stream displaced from the ring moves to a short sorted list.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::field::Field;
use crate::hpack::Indexing;

const NONE: u32 = u32::MAX;
const RING_START: usize = 16;
/// Number of closed streams remembered: frames that cross a stream's end on the wire arrive soon after it.
const CLOSED_REMEMBERED: usize = 64;

/// A stream as the caller names it: a small dense index for tables of its own, and the identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(crate) index: u32,
    pub(crate) id: u32,
}

impl StreamKey {
    /// The slot's number; reused when the stream has ended.
    #[inline]
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// The identifier on the wire, never reused.
    #[inline]
    pub fn id(self) -> u32 {
        self.id
    }
}

/// End of our side of a stream, once its queued bytes are sent.
#[derive(Debug, Default)]
pub(crate) enum QueuedEnd {
    #[default]
    Open,
    WithData,
    WithTrailers(Vec<(Field, Indexing)>),
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the four are independent; names say more than an enum would")]
pub(crate) struct Stream {
    /// 0 if the slot is free.
    pub(crate) id: u32,
    /// True once the peer has ended its side.
    pub(crate) receive_closed: bool,
    /// True once END_STREAM is in the output.
    pub(crate) send_closed: bool,
    /// True once the response's head has arrived (client) or been sent (server).
    pub(crate) head_seen: bool,
    pub(crate) receive_window: i64,
    /// Bytes consumed by the application and not yet returned by WINDOW_UPDATE.
    pub(crate) unannounced: u32,
    pub(crate) send_window: i64,
    pub(crate) content_left: Option<u64>,
    /// Bytes, and whether they are lent.
    pub(crate) queue: VecDeque<(Bytes, bool)>,
    pub(crate) queued_bytes: usize,
    /// Of those, bytes that are lent.
    pub(crate) lent_bytes: usize,
    pub(crate) queued_end: QueuedEnd,
    /// Last time bytes of the queue were sent, or the queue began.
    pub(crate) waiting_since_ms: u64,
    /// True if the slot is in the list of streams with something to send.
    pub(crate) is_ready: bool,
}

impl Stream {
    pub(crate) fn has_queued(&self) -> bool {
        self.queued_bytes > 0 || !matches!(self.queued_end, QueuedEnd::Open)
    }

    fn recycle(&mut self) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.clear();
        *self = Self { queue, is_ready: self.is_ready, ..Self::default() };
    }
}

#[derive(Debug)]
pub(crate) struct Streams {
    slots: Vec<Stream>,
    free: Vec<u32>,
    ring: Vec<u32>,
    displaced: Vec<(u32, u32)>,
    /// Identifier and whether we reset it, indexed by the identifier's low bits.
    closed: [(u32, bool); CLOSED_REMEMBERED],
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ring: Vec::new(),
            displaced: Vec::new(),
            closed: [(0, false); CLOSED_REMEMBERED],
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    fn place(&self, id: u32) -> usize {
        (id >> 1) as usize & (self.ring.len().wrapping_sub(1))
    }

    #[inline]
    pub(crate) fn find(&self, id: u32) -> Option<StreamKey> {
        let index = *self.ring.get(self.place(id))?;
        if index != NONE && self.slots[index as usize].id == id {
            return Some(StreamKey { index, id });
        }
        let position = self.displaced.binary_search_by_key(&id, |entry| entry.0).ok()?;
        Some(StreamKey { index: self.displaced[position].1, id })
    }

    /// The slot of a key, unless the stream has ended.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.slots.get_mut(key.index as usize).filter(|stream| stream.id == key.id)
    }

    #[inline]
    pub(crate) fn get(&self, key: StreamKey) -> Option<&Stream> {
        self.slots.get(key.index as usize).filter(|stream| stream.id == key.id)
    }

    /// The slot's current stream, whichever key queued it.
    pub(crate) fn key_at(&self, index: u32) -> Option<StreamKey> {
        let id = self.slots.get(index as usize)?.id;
        (id != 0).then_some(StreamKey { index, id })
    }

    pub(crate) fn slot_mut(&mut self, index: u32) -> Option<&mut Stream> {
        self.slots.get_mut(index as usize)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = StreamKey> {
        (0u32..).zip(&self.slots).filter(|(_, slot)| slot.id != 0).map(|(index, slot)| StreamKey { index, id: slot.id })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slots.iter_mut().filter(|stream| stream.id != 0)
    }

    /// The key that the next inserted stream will have, if it has this identifier.
    #[inline]
    pub(crate) fn next(&self, id: u32) -> StreamKey {
        let index = self.free.last().copied().unwrap_or_else(|| u32::try_from(self.slots.len()).unwrap_or(NONE));
        StreamKey { index, id }
    }

    pub(crate) fn insert(&mut self, id: u32, receive_window: i64, send_window: i64) -> StreamKey {
        let StreamKey { index, .. } = self.next(id);
        if self.free.pop().is_none() {
            self.slots.push(Stream::default());
        }
        let slot = &mut self.slots[index as usize];
        slot.id = id;
        slot.receive_window = receive_window;
        slot.send_window = send_window;
        self.link(id, index);
        StreamKey { index, id }
    }

    fn link(&mut self, id: u32, index: u32) {
        if self.ring.is_empty() {
            self.ring = vec![NONE; RING_START];
        }
        let occupant = self.ring[self.place(id)];
        if occupant != NONE && self.ring.len() < 2 * self.live() {
            return self.grow();
        }
        if occupant != NONE {
            let entry = (self.slots[occupant as usize].id, occupant);
            let position = self.displaced.partition_point(|other| other.0 < entry.0);
            self.displaced.insert(position, entry);
        }
        let place = self.place(id);
        self.ring[place] = index;
    }

    /// Doubles the ring and rebuilds the look-up from the slots.
    fn grow(&mut self) {
        let size = self.ring.len() * 2;
        self.ring.clear();
        self.ring.resize(size, NONE);
        self.displaced.clear();
        let keys: Vec<StreamKey> = self.keys().collect();
        for key in keys {
            let place = self.place(key.id);
            if self.ring[place] == NONE {
                self.ring[place] = key.index;
            } else {
                self.displaced.push((key.id, key.index));
            }
        }
        self.displaced.sort_unstable();
    }

    pub(crate) fn remove(&mut self, key: StreamKey, reset_by_us: bool) {
        let Some(slot) = self.get_mut(key) else { return };
        slot.recycle();
        let place = self.place(key.id);
        if self.ring[place] == key.index {
            self.ring[place] = NONE;
        } else if let Ok(position) = self.displaced.binary_search_by_key(&key.id, |entry| entry.0) {
            self.displaced.remove(position);
        }
        self.free.push(key.index);
        self.remember_closed(key.id, reset_by_us);
    }

    pub(crate) fn remember_closed(&mut self, id: u32, reset_by_us: bool) {
        self.closed[(id >> 1) as usize % CLOSED_REMEMBERED] = (id, reset_by_us);
    }

    /// For a recently closed stream, whether we reset it.
    pub(crate) fn lately_closed(&self, id: u32) -> Option<bool> {
        let (closed, reset_by_us) = self.closed[(id >> 1) as usize % CLOSED_REMEMBERED];
        (closed == id).then_some(reset_by_us)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Streams open with growing identifiers and close in any order; the look-up agrees with a map.
        #[test]
        fn look_up_agrees_with_a_map(steps in proptest::collection::vec((any::<bool>(), any::<u16>(), 1u32..90), 1..400)) {
            let mut streams = Streams::new();
            let mut model: HashMap<u32, StreamKey> = HashMap::new();
            let mut next_id = 1;
            for (open, pick, skip) in steps {
                if open {
                    model.insert(next_id, streams.insert(next_id, 0, 0));
                    next_id += 2 * skip;
                } else if !model.is_empty() {
                    let mut ids: Vec<u32> = model.keys().copied().collect();
                    ids.sort_unstable();
                    let id = ids[usize::from(pick) % ids.len()];
                    streams.remove(model.remove(&id).unwrap(), false);
                    prop_assert_eq!(streams.lately_closed(id), Some(false));
                }
                prop_assert_eq!(streams.live(), model.len());
                for id in (1..next_id).step_by(14) {
                    prop_assert_eq!(streams.find(id), model.get(&id).copied());
                }
            }
        }
    }

    #[test]
    fn stale_key_finds_nothing() {
        let mut streams = Streams::new();
        let old = streams.insert(1, 0, 0);
        streams.remove(old, true);
        let new = streams.insert(3, 0, 0);
        assert_eq!(old.index(), new.index());
        assert!(streams.get_mut(old).is_none() && streams.get_mut(new).is_some());
        assert_eq!(streams.lately_closed(1), Some(true));
    }
}
