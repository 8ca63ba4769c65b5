//! The table of names seen, which both ends keep alike: a ring from which the oldest goes when a new one needs room.
//!
//! Who comes in is the sender's choice and travels with the message, so both ends always agree on who went out.

use std::collections::VecDeque;

use crate::settings::TableLimits;

impl TableLimits {
    pub(super) fn at_most(self, other: Self) -> Self {
        Self { names_max: self.names_max.min(other.names_max), bytes_max: self.bytes_max.min(other.bytes_max) }
    }
}

/// What an entry costs beside its name.
pub const ENTRY_BYTES: usize = 32;

/// Entries with what each end keeps of them.
#[derive(Debug)]
pub struct Ring<T> {
    limits: TableLimits,
    entries: VecDeque<(usize, T)>,
    bytes: usize,
    /// Place of the oldest entry.
    first_slot: usize,
    /// Entries that went out so far.
    evicted: u64,
}

impl<T> Ring<T> {
    /// An empty one.
    pub fn new(limits: TableLimits) -> Self {
        Self { limits, entries: VecDeque::new(), bytes: 0, first_slot: 0, evicted: 0 }
    }

    /// Whether a name can be in it at all.
    pub fn can_hold(&self, name_bytes: usize) -> bool {
        self.limits.names_max > 0 && name_bytes.saturating_add(ENTRY_BYTES) <= self.limits.bytes_max
    }

    /// Whether a name can come in without another going out.
    pub fn has_room(&self, name_bytes: usize) -> bool {
        self.entries.len() < self.limits.names_max
            && self.bytes.saturating_add(name_bytes).saturating_add(ENTRY_BYTES) <= self.limits.bytes_max
    }

    /// Puts a name in that [`Ring::can_hold`], and returns its number: how many came in before.
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

    /// The slot of an entry by its number, while it is in.
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

    /// Names in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// None in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What they cost.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // A model that has no ring: numbered names, the oldest first.
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
