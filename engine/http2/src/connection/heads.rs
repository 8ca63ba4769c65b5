//! Heads of a connection: the cache of decoded header blocks, since clients send the same block again and again, and the
//! request heads that wait for their bodies.
//!
//! A cached block is valid only for the generation of the HPACK table that it was decoded on.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::head::{Head, Section};

/// Largest cached block: indexes and a literal or two, as some clients never index a path.
const CACHED_BLOCK_BYTES: usize = 96;
const CACHED_BLOCKS: usize = 16;

#[derive(Debug)]
struct CachedHead {
    generation: u64,
    section: Section,
    length: usize,
    block: [u8; CACHED_BLOCK_BYTES],
    head: Arc<Head>,
}

/// Cache slot, shared by some hashes.
#[derive(Debug, Default)]
struct Slot {
    /// Hash of the last block that missed here.
    missed: u64,
    /// Boxed, since most connections send one block or two.
    kept: Option<Box<CachedHead>>,
}

/// Heads by the bytes of their blocks. A block's hash selects its slot; another block replaces it only when seen twice
/// in a row, so blocks that never repeat, such as those with an exact timeout, cost no memory and evict nothing.
#[derive(Debug, Default)]
pub(super) struct BlockCache {
    slots: Vec<Slot>,
    /// Slot of the last hit: most blocks repeat the one before.
    last: usize,
}

impl BlockCache {
    fn hash(block: &[u8]) -> u64 {
        let mut hash = block.len() as u64;
        let (words, rest) = block.as_chunks::<8>();
        for word in words {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
        for byte in rest {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
        hash
    }

    fn slot(hash: u64) -> usize {
        usize::from((hash >> 32).to_le_bytes()[0]) % CACHED_BLOCKS
    }

    #[inline]
    pub(super) fn get(&mut self, section: Section, block: &[u8], generation: u64) -> Option<&Arc<Head>> {
        if !self.has_at(self.last, section, block, generation) {
            let slot = Self::slot(Self::hash(block));
            if !self.has_at(slot, section, block, generation) {
                return None;
            }
            self.last = slot;
        }
        self.slots[self.last].kept.as_deref().map(|entry| &entry.head)
    }

    #[inline]
    fn has_at(&self, slot: usize, section: Section, block: &[u8], generation: u64) -> bool {
        let entry = self.slots.get(slot).and_then(|slot| slot.kept.as_deref());
        entry.is_some_and(|entry| {
            entry.length == block.len()
                && entry.generation == generation
                && entry.section == section
                && entry.block.get(..block.len()).is_some_and(|kept| kept == block)
        })
    }

    pub(super) fn put(&mut self, section: Section, block: &[u8], generation: u64, head: &Arc<Head>) {
        if block.len() > CACHED_BLOCK_BYTES {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(CACHED_BLOCKS, Slot::default);
        }
        let hash = Self::hash(block);
        let slot = &mut self.slots[Self::slot(hash)];
        if std::mem::replace(&mut slot.missed, hash) != hash {
            return;
        }
        let mut bytes = [0; CACHED_BLOCK_BYTES];
        bytes[..block.len()].copy_from_slice(block);
        let length = block.len();
        let cached = CachedHead { generation, section, length, block: bytes, head: Arc::clone(head) };
        slot.kept = Some(Box::new(cached));
    }
}

/// Requests whose head alone has arrived, in stream order.
#[derive(Debug, Default)]
pub(super) struct WaitingHeads {
    runs: VecDeque<Run>,
    requests: usize,
}

/// Consecutive streams with the same head: most clients repeat a call.
#[derive(Debug)]
struct Run {
    head: Arc<Head>,
    first: u32,
    last: u32,
}

impl WaitingHeads {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.requests
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    #[inline]
    pub(super) fn push(&mut self, id: u32, head: &Arc<Head>) {
        self.requests += 1;
        if let Some(run) = self.runs.back_mut()
            && Arc::ptr_eq(&run.head, head)
            && id == run.last + 2
        {
            run.last = id;
            return;
        }
        self.runs.push_back(Run { head: Arc::clone(head), first: id, last: id });
    }

    /// The first stream and its head.
    #[inline]
    pub(super) fn first(&self) -> Option<(u32, &Arc<Head>)> {
        self.runs.front().map(|run| (run.first, &run.head))
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        let Some(run) = self.runs.front_mut() else { return };
        self.requests -= 1;
        if run.first < run.last {
            run.first += 2;
        } else {
            self.runs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;

    #[test]
    fn what_comes_once_takes_no_place_from_what_comes_again() {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
        let fields = fields.map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes())).to_vec();
        let head = Arc::new(Head::request(fields).unwrap());
        let mut cache = BlockCache::default();
        let again = [0x82, 0x86, 0x84];
        cache.put(Section::Request, &again, 1, &head);
        assert!(cache.get(Section::Request, &again, 1).is_none());
        cache.put(Section::Request, &again, 1, &head);
        assert!(cache.get(Section::Request, &again, 1).is_some());
        for once in 0..1000_u32 {
            cache.put(Section::Request, &once.to_be_bytes(), 1, &head);
        }
        assert!(cache.get(Section::Request, &again, 1).is_some());
        assert!(cache.get(Section::Request, &again, 2).is_none(), "the table has changed");
        assert!(cache.get(Section::Response, &again, 1).is_none());
    }
}
