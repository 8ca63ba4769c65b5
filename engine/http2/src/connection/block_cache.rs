//! Cache of decoded header blocks: clients send the same block again and again.
//!
//! An entry is valid only for the generation of the HPACK table that it was decoded on.

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
struct Place {
    /// Hash of the last block that missed here.
    missed: u64,
    /// Boxed, since most connections send one block or two.
    kept: Option<Box<CachedHead>>,
}

/// Heads by the bytes of their blocks. A block's hash selects its slot; another block replaces it only when seen twice
/// in a row, so blocks that never repeat, such as those with an exact timeout, cost no memory and evict nothing.
#[derive(Debug, Default)]
pub(super) struct BlockCache {
    places: Vec<Place>,
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

    fn place(hash: u64) -> usize {
        usize::from((hash >> 32).to_le_bytes()[0]) % CACHED_BLOCKS
    }

    #[inline]
    pub(super) fn get(&mut self, section: Section, block: &[u8], generation: u64) -> Option<&Arc<Head>> {
        if !self.has_at(self.last, section, block, generation) {
            let place = Self::place(Self::hash(block));
            if !self.has_at(place, section, block, generation) {
                return None;
            }
            self.last = place;
        }
        self.places[self.last].kept.as_deref().map(|entry| &entry.head)
    }

    #[inline]
    fn has_at(&self, place: usize, section: Section, block: &[u8], generation: u64) -> bool {
        let entry = self.places.get(place).and_then(|place| place.kept.as_deref());
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
        if self.places.is_empty() {
            self.places.resize_with(CACHED_BLOCKS, Place::default);
        }
        let hash = Self::hash(block);
        let place = &mut self.places[Self::place(hash)];
        if std::mem::replace(&mut place.missed, hash) != hash {
            return;
        }
        let mut bytes = [0; CACHED_BLOCK_BYTES];
        bytes[..block.len()].copy_from_slice(block);
        let length = block.len();
        let cached = CachedHead { generation, section, length, block: bytes, head: Arc::clone(head) };
        place.kept = Some(Box::new(cached));
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
