//! The dynamic table (RFC 7541 sections 2.3.2 and 4).
//!
//! Entries are reference-counted decoded fields: a repeated header costs a look-up.

use std::collections::VecDeque;

use super::ENTRY_OVERHEAD_BYTES;
use crate::field::Field;

#[derive(Debug)]
pub(crate) struct Table {
    /// Newest first.
    entries: VecDeque<Field>,
    used_bytes: usize,
    bytes_max: usize,
    /// Incremented by every change, so that anything derived from an earlier state can detect that it is stale.
    generation: u64,
}

impl Table {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), used_bytes: 0, bytes_max, generation: 0 }
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The entry at `position`; 0 is the newest.
    #[inline]
    pub(crate) fn get(&self, position: usize) -> Option<&Field> {
        self.entries.get(position)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Field> {
        self.entries.iter()
    }

    pub(crate) fn resize(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.generation += 1;
        self.evict(0);
    }

    /// Inserts an entry; one larger than the table empties it and is not kept (RFC 7541 section 4.4).
    pub(crate) fn insert(&mut self, field: Field) {
        let size = field.table_bytes();
        self.generation += 1;
        self.evict(size);
        if size <= self.bytes_max {
            self.used_bytes += size;
            self.entries.push_front(field);
        }
    }

    fn evict(&mut self, room_for: usize) {
        while self.used_bytes + room_for > self.bytes_max {
            let Some(oldest) = self.entries.pop_back() else { break };
            self.used_bytes -= oldest.table_bytes();
        }
        debug_assert!(self.used_bytes >= self.entries.len() * ENTRY_OVERHEAD_BYTES, "every entry is counted");
    }
}
