//! The keys in byte order, for scans. Partitioned, so that writers of different keys seldom contend.
//!
//! A key enters and leaves while its map slot is locked, so that both agree whenever no one writes the key.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, RandomState},
    ops::Bound,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::entry::Key;

const PARTS: usize = 16;

/// Keys that a scan reads from a partition under one lock, which bounds writers' wait.
const CHUNK: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Index {
    parts: [Mutex<BTreeSet<Key>>; PARTS],
    hasher: RandomState,
}

impl Index {
    #[expect(clippy::cast_possible_truncation, reason = "some bits of a hash are enough to choose a part")]
    fn part(&self, key: &[u8]) -> MutexGuard<'_, BTreeSet<Key>> {
        lock(&self.parts[self.hasher.hash_one(key) as usize % PARTS])
    }

    pub(crate) fn insert(&self, key: &Key) {
        self.part(key).insert(Key::clone(key));
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        self.part(key).remove(key);
    }

    /// The first keys with a prefix, after `after`; at most `keys_max`, and fewer only if there are no more.
    pub(crate) fn keys(&self, prefix: &[u8], after: Option<&[u8]>, keys_max: usize) -> Vec<Key> {
        let mut found = Vec::new();
        let mut after = after.map(<[u8]>::to_vec);
        while found.len() < keys_max {
            let (mut keys, more) = self.chunk(prefix, after.as_deref());
            keys.truncate(keys_max - found.len());
            let Some(last) = keys.last() else { break };
            after = Some(last.to_vec());
            found.append(&mut keys);
            if !more {
                break;
            }
        }
        found
    }

    /// Some of the first keys in order, without gaps; true if there may be more.
    fn chunk(&self, prefix: &[u8], after: Option<&[u8]>) -> (Vec<Key>, bool) {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let (mut keys, mut reach): (Vec<Key>, Option<Key>) = (Vec::new(), None);
        for part in &self.parts {
            let before = keys.len();
            let part = lock(part);
            let range = part.range::<[u8], _>((from, Bound::Unbounded));
            keys.extend(range.take_while(|key| key.starts_with(prefix)).take(CHUNK).cloned());
            drop(part);
            // Beyond the last key read from a partition with more, this chunk would have gaps.
            if keys.len() - before == CHUNK
                && let Some(last) = keys.last()
                && reach.as_ref().is_none_or(|reach| last < reach)
            {
                reach = Some(Key::clone(last));
            }
        }
        keys.sort_unstable();
        if let Some(reach) = &reach {
            keys.truncate(keys.partition_point(|key| key <= reach));
        }
        (keys, reach.is_some())
    }
}

fn lock(part: &Mutex<BTreeSet<Key>>) -> MutexGuard<'_, BTreeSet<Key>> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_are_those_of_one_ordered_set(
            keys in prop::collection::btree_set(prop::collection::vec(0u8..3, 0..9), 0..3000),
            prefix in prop::collection::vec(0u8..3, 0..3),
            after in prop::option::of(prop::collection::vec(0u8..3, 0..6)),
            most in 0usize..1500,
        ) {
            let index = Index::default();
            for key in &keys {
                index.insert(&Key::from(&key[..]));
            }
            let wanted = keys.iter().filter(|key| key.starts_with(&prefix) && after.as_ref().is_none_or(|after| *key > after));
            let wanted: Vec<_> = wanted.take(most).map(|key| Key::from(&key[..])).collect();
            prop_assert_eq!(index.keys(&prefix, after.as_deref(), most), wanted);
        }
    }
}
