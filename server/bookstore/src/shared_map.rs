//! An ordered map whose clones share parts.

use std::{borrow::Borrow, ops::Bound, sync::Arc};

/// Most entries of a part; a larger one is split. Small enough to copy for a change, large enough that a million
/// entries have about 4,000 parts. Tests split and empty parts of four.
const PART_MAX: usize = if cfg!(test) { 4 } else { 512 };

/// Entries in key order, in shared parts. A clone copies one reference per part, a change at most one part. A look-up
/// does two binary searches.
#[derive(Clone, Debug)]
pub(crate) struct SharedMap<K, V> {
    /// No part is empty.
    parts: Vec<Arc<Vec<(K, V)>>>,
    len: usize,
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// A map of these entries, which are sorted and have distinct keys.
    pub(crate) fn from_ordered(entries: Vec<(K, V)>) -> Self {
        debug_assert!(entries.is_sorted_by(|one, next| one.0 < next.0), "the entries are in order");
        let len = entries.len();
        let mut entries = entries.into_iter();
        let parts = std::iter::from_fn(|| Some(entries.by_ref().take(PART_MAX / 2).collect::<Vec<_>>()))
            .take_while(|part| !part.is_empty());
        Self { parts: parts.map(Arc::new).collect(), len }
    }

    /// Number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// True if there are no entries.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Index of the only part that may hold a key: the last that begins at or before it.
    fn part_of<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.parts.partition_point(|part| part[0].0.borrow() <= key).saturating_sub(1)
    }

    /// The entry of a key.
    pub(crate) fn entry<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&(K, V)>
    where
        K: Borrow<Q>,
    {
        let part = self.parts.get(self.part_of(key))?;
        part.binary_search_by(|(other, _)| other.borrow().cmp(key)).ok().map(|place| &part[place])
    }

    /// The value of a key.
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entry(key).map(|(_, value)| value)
    }

    /// The highest key.
    pub(crate) fn last(&self) -> Option<&K> {
        self.parts.last()?.last().map(|(key, _)| key)
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let index = self.part_of(&key);
        let Some(part) = self.parts.get_mut(index) else {
            self.parts.push(Arc::new(vec![(key, value)]));
            self.len = 1;
            return;
        };
        let part = Arc::make_mut(part);
        match part.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(place) => part[place].1 = value,
            Err(place) => {
                part.insert(place, (key, value));
                self.len += 1;
                if part.len() > PART_MAX {
                    let upper = part.split_off(PART_MAX / 2);
                    self.parts.insert(index + 1, Arc::new(upper));
                }
            }
        }
    }

    /// Removes a key with its value, if present.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let index = self.part_of(key);
        let Some(part) = self.parts.get_mut(index) else { return };
        let Ok(place) = part.binary_search_by(|(other, _)| other.borrow().cmp(key)) else { return };
        Arc::make_mut(part).remove(place);
        self.len -= 1;
        if self.parts[index].is_empty() {
            self.parts.remove(index);
        }
    }

    /// Entries in order, from a key on.
    pub(crate) fn range<'a, Q: Ord + ?Sized>(
        &'a self,
        from: Bound<&Q>,
    ) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V, Q>
    where
        K: Borrow<Q>,
    {
        let is_before = |key: &K| match from {
            Bound::Unbounded => false,
            Bound::Included(from) => key.borrow() < from,
            Bound::Excluded(from) => key.borrow() <= from,
        };
        let first = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => self.part_of(key),
        };
        let skipped = self.parts.get(first).map_or(0, |part| part.partition_point(|(key, _)| is_before(key)));
        self.parts[first.min(self.parts.len())..]
            .iter()
            .flat_map(|part| part.iter())
            .skip(skipped)
            .map(|(key, value)| (key, value))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, ops::Bound};

    use proptest::prelude::*;

    use super::SharedMap;

    fn check(map: &SharedMap<u16, u32>, model: &BTreeMap<u16, u32>, from: Bound<&u16>) {
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        assert!(map.range(from).eq(model.range((from.cloned(), Bound::Unbounded))));
    }

    proptest! {
        #[test]
        fn behaves_as_an_ordered_map(
            first in 0_u16..50,
            changes in prop::collection::vec((0_u16..50, prop::option::of(any::<u32>())), 0..300),
            from in 0_u16..50,
        ) {
            let mut model: BTreeMap<u16, u32> = (0..first).map(|key| (key, key.into())).collect();
            let mut map = SharedMap::from_ordered(model.clone().into_iter().collect());
            let (before, clone) = (model.clone(), map.clone());
            for (key, value) in changes {
                if let Some(value) = value {
                    map.insert(key, value);
                    model.insert(key, value);
                } else {
                    map.remove(&key);
                    model.remove(&key);
                }
                assert_eq!(map.get(&key), model.get(&key));
            }
            for from in [Bound::Unbounded, Bound::Included(&from), Bound::Excluded(&from)] {
                check(&map, &model, from);
                check(&clone, &before, from);
            }
        }
    }
}
