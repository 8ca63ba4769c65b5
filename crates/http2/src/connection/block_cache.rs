//! Decoded header blocks, kept because clients send the same block again and again.
//!
//! An entry holds only for the generation of the HPACK table that it was decoded on. Must not know what a head means.

use std::sync::Arc;

use crate::head::{Head, Section};

/// Room for indexes and a literal or two: some clients never index a path.
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

/// Heads by the bytes of their blocks. A block has one place, by its hash; a later block takes it over.
#[derive(Debug, Default)]
pub(super) struct BlockCache {
    /// In boxes, since most connections send one block or two.
    entries: Vec<Option<Box<CachedHead>>>,
}

impl BlockCache {
    fn place(block: &[u8]) -> usize {
        let mut hash = block.len() as u64;
        let (words, rest) = block.as_chunks::<8>();
        for word in words {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
        for byte in rest {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
        usize::from((hash >> 32).to_le_bytes()[0]) % CACHED_BLOCKS
    }

    #[inline]
    pub(super) fn get(&self, section: Section, block: &[u8], generation: u64) -> Option<&Arc<Head>> {
        if block.len() > CACHED_BLOCK_BYTES {
            return None;
        }
        let entry = self.entries.get(Self::place(block))?.as_deref()?;
        let same = entry.generation == generation
            && entry.section == section
            && entry.length == block.len()
            && entry.block[..entry.length] == *block;
        same.then_some(&entry.head)
    }

    pub(super) fn put(&mut self, section: Section, block: &[u8], generation: u64, head: &Arc<Head>) {
        if block.len() > CACHED_BLOCK_BYTES {
            return;
        }
        if self.entries.is_empty() {
            self.entries.resize_with(CACHED_BLOCKS, || None);
        }
        let mut bytes = [0; CACHED_BLOCK_BYTES];
        bytes[..block.len()].copy_from_slice(block);
        let length = block.len();
        let cached = CachedHead { generation, section, length, block: bytes, head: Arc::clone(head) };
        self.entries[Self::place(block)] = Some(Box::new(cached));
    }
}
