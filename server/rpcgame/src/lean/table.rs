//! Table of names, kept identically at both ends: a ring that evicts the oldest when a new one needs room.
//!
//! The sender decides which names enter, and marks them in the message, so both ends always agree on evictions.

use std::collections::VecDeque;

use crate::settings::TableLimits;

impl TableLimits {
    pub(super) fn at_most(self, other: Self) -> Self {
        Self { names_max: self.names_max.min(other.names_max), bytes_max: self.bytes_max.min(other.bytes_max) }
    }
}

/// Overhead of an entry besides its name.
pub const ENTRY_BYTES: usize = 32;

/// Entries, with each end's data.
#[derive(Debug)]
pub struct Ring<T> {
    limits: TableLimits,
    entries: VecDeque<(usize, T)>,
    bytes: usize,
    /// Slot of the oldest entry.
    first_slot: usize,
    /// Number of entries evicted so far.
    evicted: u64,
}

impl<T> Ring<T> {
    /// Creates an empty table.
    pub fn new(limits: TableLimits) -> Self {
        Self { limits, entries: VecDeque::new(), bytes: 0, first_slot: 0, evicted: 0 }
    }

    /// True if a name of this length fits at all.
    pub fn can_hold(&self, name_bytes: usize) -> bool {
        self.limits.names_max > 0 && name_bytes.saturating_add(ENTRY_BYTES) <= self.limits.bytes_max
    }

    /// True if a name of this length fits without eviction.
    pub fn has_room(&self, name_bytes: usize) -> bool {
        self.entries.len() < self.limits.names_max
            && self.bytes.saturating_add(name_bytes).saturating_add(ENTRY_BYTES) <= self.limits.bytes_max
    }

    /// Inserts a name for which [`Ring::can_hold`] is true, and returns its number: the count of earlier insertions.
    pub fn insert(&mut self, name_bytes: usize, entry: T) -> u64 {
        debug_assert!(self.can_hold(name_bytes), "asked before");
        while !self.has_room(name_bytes) {
            let Some((cost, _)) = self.entries.pop_front() else { break };
            self.bytes -= cost;
            self.evicted += 1;
            self.first_slot += 1;
            if self.first_slot >= self.limits.names_max {
                self.first_slot = 0;
            }
        }
        let cost = name_bytes + ENTRY_BYTES;
        self.bytes += cost;
        self.entries.push_back((cost, entry));
        self.evicted + self.entries.len() as u64 - 1
    }

    /// The entry in a slot.
    #[inline]
    pub fn get(&self, slot: u64) -> Option<&T> {
        let slot = usize::try_from(slot).ok().filter(|slot| *slot < self.limits.names_max)?;
        let place = if slot >= self.first_slot {
            slot - self.first_slot
        } else {
            slot + self.limits.names_max - self.first_slot
        };
        self.entries.get(place).map(|(_, entry)| entry)
    }

    /// The slot of an entry by its number, unless evicted.
    #[inline]
    pub fn slot(&self, number: u64) -> Option<u64> {
        let place = usize::try_from(number.checked_sub(self.evicted)?).ok()?;
        if place >= self.entries.len() {
            return None;
        }
        let slot = self.first_slot + place;
        let slot = if slot >= self.limits.names_max { slot - self.limits.names_max } else { slot };
        Some(slot as u64)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory cost of the names, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // The model has no ring: numbered names, oldest first.
        #[test]
        fn the_oldest_go_and_every_other_stays_where_it_is(
            names_max in 1..6_usize,
            bytes_max in 0..400_usize,
            lengths in prop::collection::vec(0..200_usize, 0..60),
        ) {
            let mut ring = Ring::new(TableLimits { names_max, bytes_max });
            let mut model: Vec<(u64, usize)> = Vec::new();
            let mut came = 0;
            for length in lengths {
                if !ring.can_hold(length) {
                    prop_assert!(length + ENTRY_BYTES > bytes_max);
                    continue;
                }
                prop_assert_eq!(ring.insert(length, came), came);
                model.push((came, length + ENTRY_BYTES));
                while model.len() > names_max || model.iter().map(|entry| entry.1).sum::<usize>() > bytes_max {
                    model.remove(0);
                }
                came += 1;
                prop_assert_eq!(ring.len(), model.len());
                prop_assert_eq!(ring.bytes(), model.iter().map(|entry| entry.1).sum::<usize>());
                for number in 0..came {
                    let is_in = model.iter().any(|entry| entry.0 == number);
                    let slot = ring.slot(number);
                    prop_assert_eq!(slot, is_in.then_some(number % names_max as u64));
                    if let Some(slot) = slot {
                        prop_assert_eq!(ring.get(slot), Some(&number));
                    }
                }
                prop_assert_eq!(ring.slot(came), None);
                prop_assert_eq!(ring.get(names_max as u64), None);
            }
        }
    }
}
