//! The entries in memory: the map, and the index, usage and watchers that must agree with it. All change together while
//! the key's map slot is briefly locked; no call waits for another's work.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, RandomState},
    num::NonZeroU64,
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use scc::hash_map::{self, HashMap, OccupiedEntry, VacantEntry};

use crate::{
    entry::{Clock, Entry, Key, Value, Version, entry_bytes},
    fault::{Fault, Limit},
    settings::Limits,
    watch::{EventKind, Hub},
    write::{Action, Effect, Outcome, Present},
};

#[derive(Debug)]
pub(crate) struct Table {
    map: HashMap<Key, Entry>,
    index: Index,
    expiries: Expiries,
    pub(crate) usage: Usage,
    pub(crate) hub: Arc<Hub>,
    version: AtomicU64,
    pub(crate) clock: Clock,
}

impl Table {
    pub(crate) fn new(limits: &Limits, clock: Clock) -> Self {
        Self {
            map: HashMap::default(),
            index: Index::default(),
            expiries: Expiries::default(),
            usage: Usage::new(limits.entries, limits.total_bytes),
            hub: Arc::new(Hub::new(limits)),
            version: AtomicU64::new(0),
            clock,
        }
    }

    /// A new version.
    pub(crate) fn next_version(&self) -> Version {
        Version(self.version.fetch_add(1, Relaxed) + 1)
    }

    /// The last version used.
    pub(crate) fn version(&self) -> Version {
        Version(self.version.load(Relaxed))
    }

    /// Marks versions up to this one as used, after a restart.
    pub(crate) fn skip_versions(&self, last: Version) {
        self.version.fetch_max(last.0, Relaxed);
    }

    /// Passes a key's entry to `read`, unless expired. Writers of the same key wait while `read` runs.
    #[inline]
    pub(crate) fn read<R>(&self, key: &[u8], read: impl FnOnce(&Entry) -> R) -> Option<R> {
        self.map.read_sync(key, |_, entry| (!entry.is_expired(|| self.clock.now_ms())).then(|| read(entry))).flatten()
    }

    /// The first keys with a prefix, after `after`.
    pub(crate) fn keys(&self, prefix: &[u8], after: Option<&[u8]>, keys_max: usize) -> Vec<Key> {
        self.index.keys(prefix, after, keys_max)
    }

    pub(crate) fn due(&self, most: usize) -> Vec<(Key, Version)> {
        self.expiries.due(self.clock.now_ms(), most)
    }

    /// A key's state, with the memory of its entry.
    pub(crate) fn present(&self, key: &[u8]) -> (Present, Option<usize>) {
        let found = self.map.read_sync(key, |key, entry| (self.presence(entry), entry_bytes(key, &entry.value)));
        found.map_or((Present::Absent, None), |(present, bytes)| (present, Some(bytes)))
    }

    fn presence(&self, entry: &Entry) -> Present {
        let expired = entry.is_expired(|| self.clock.now_ms());
        if expired { Present::Expired(entry.version) } else { Present::Live(entry.version) }
    }

    /// Decides and executes a write.
    pub(crate) fn write(&self, key: Key, action: &Action) -> Result<Outcome, Fault> {
        match self.map.entry_sync(key) {
            hash_map::Entry::Occupied(place) => self.write_over(place, action),
            hash_map::Entry::Vacant(place) => {
                if action.decide(Present::Absent)? != Effect::Put {
                    return Ok(Outcome::Nothing);
                }
                let Some((value, expires_at_ms)) = action.value() else { return Ok(Outcome::Nothing) };
                self.usage.take(None, entry_bytes(place.key(), value))?;
                let entry = Entry { value: value.clone(), version: self.next_version(), expires_at_ms };
                let version = entry.version;
                self.insert(place, entry);
                Ok(Outcome::Put(version))
            }
        }
    }

    /// Replaces the value of a live entry without copying the key. `None` without a change if there is no such entry or
    /// no room.
    pub(crate) fn overwrite(&self, key: &[u8], value: &[u8]) -> Option<Version> {
        let place = self.map.get_sync(key)?;
        if !matches!(self.presence(place.get()), Present::Live(_)) {
            return None;
        }
        let value = Value::copied(value);
        let old = entry_bytes(place.key(), &place.get().value);
        self.usage.take(Some(old), entry_bytes(place.key(), &value)).ok()?;
        let version = self.next_version();
        self.replace(place, Entry { value, version, expires_at_ms: None });
        Some(version)
    }

    fn write_over(&self, place: OccupiedEntry<'_, Key, Entry>, action: &Action) -> Result<Outcome, Fault> {
        let present = self.presence(place.get());
        let old = entry_bytes(place.key(), &place.get().value);
        match (action.decide(present)?, action.value()) {
            (Effect::Put, Some((value, expires_at_ms))) => {
                self.usage.take(Some(old), entry_bytes(place.key(), value))?;
                if matches!(present, Present::Expired(_)) {
                    self.hub.notify(EventKind::Expired, place.key(), None, self.next_version());
                }
                let entry = Entry { value: value.clone(), version: self.next_version(), expires_at_ms };
                let version = entry.version;
                self.replace(place, entry);
                Ok(Outcome::Put(version))
            }
            (Effect::Remove, _) => {
                let kind =
                    if matches!(action, Action::Expire { .. }) { EventKind::Expired } else { EventKind::Deleted };
                self.take_out(place, kind, self.next_version());
                Ok(Outcome::Removed)
            }
            _ => Ok(Outcome::Nothing),
        }
    }

    fn insert(&self, place: VacantEntry<'_, Key, Entry>, entry: Entry) {
        self.index.insert(place.key());
        self.expiries.add(place.key(), &entry);
        self.hub.notify(EventKind::Put, place.key(), Some(&entry.value), entry.version);
        place.insert_entry(entry);
    }

    fn replace(&self, mut place: OccupiedEntry<'_, Key, Entry>, entry: Entry) {
        self.expiries.remove(place.get());
        self.expiries.add(place.key(), &entry);
        self.hub.notify(EventKind::Put, place.key(), Some(&entry.value), entry.version);
        place.insert(entry);
    }

    fn take_out(&self, place: OccupiedEntry<'_, Key, Entry>, kind: EventKind, version: Version) {
        self.index.remove(place.key());
        self.expiries.remove(place.get());
        self.usage.free(entry_bytes(place.key(), &place.get().value));
        self.hub.notify(kind, place.key(), None, version);
        let _ = place.remove_entry();
    }

    /// Puts an entry committed by the journal, with memory already reserved.
    pub(crate) fn put_decided(&self, key: Key, entry: Entry) {
        match self.map.entry_sync(key) {
            hash_map::Entry::Occupied(place) => {
                if matches!(self.presence(place.get()), Present::Expired(_)) {
                    self.hub.notify(EventKind::Expired, place.key(), None, entry.version);
                }
                self.replace(place, entry);
            }
            hash_map::Entry::Vacant(place) => self.insert(place, entry),
        }
    }

    /// Removes an entry whose removal the journal has committed.
    pub(crate) fn remove_decided(&self, key: Key, kind: EventKind, version: Version) {
        if let hash_map::Entry::Occupied(place) = self.map.entry_sync(key) {
            self.take_out(place, kind, version);
        }
    }

    /// Adds an entry from disk, even beyond the limits.
    pub(crate) fn found(&self, key: Key, entry: Entry) {
        if let (_, Some(bytes)) = self.present(&key) {
            self.usage.free(bytes);
        }
        self.usage.found(entry_bytes(&key, &entry.value));
        self.put_decided(key, entry);
    }
}

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

type Queue = BTreeMap<(NonZeroU64, Version), Key>;

#[derive(Debug, Default)]
pub(crate) struct Expiries(Mutex<Queue>);

impl Expiries {
    fn with<R>(&self, entry: &Entry, change: impl FnOnce(&mut Queue, (NonZeroU64, Version)) -> R) -> Option<R> {
        let at = entry.expires_at_ms?;
        Some(change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), (at, entry.version)))
    }

    pub(crate) fn add(&self, key: &Key, entry: &Entry) {
        self.with(entry, |queue, place| queue.insert(place, Key::clone(key)));
    }

    pub(crate) fn remove(&self, entry: &Entry) {
        self.with(entry, |queue, place| queue.remove(&place));
    }

    /// At most `most` expired entries; they stay until removed.
    pub(crate) fn due(&self, now_ms: u64, most: usize) -> Vec<(Key, Version)> {
        let queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = queue.iter().take_while(|((at, _), _)| at.get() <= now_ms).take(most);
        due.map(|((_, version), key)| (Key::clone(key), *version)).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Usage {
    entries: AtomicUsize,
    bytes: AtomicUsize,
    entries_max: usize,
    bytes_max: usize,
}

impl Usage {
    pub(crate) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self { entries: AtomicUsize::new(0), bytes: AtomicUsize::new(0), entries_max, bytes_max }
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Reserves memory for a new entry, or for one that replaces `old` bytes. Without enough, nothing changes.
    pub(crate) fn take(&self, old: Option<usize>, new: usize) -> Result<(), Fault> {
        if old.is_none() && !grow(&self.entries, 1, self.entries_max) {
            return Err(Fault::Limit { limit: Limit::Entries, at: self.entries_max });
        }
        let old_bytes = old.unwrap_or(0);
        if new <= old_bytes {
            self.bytes.fetch_sub(old_bytes - new, Relaxed);
        } else if !grow(&self.bytes, new - old_bytes, self.bytes_max) {
            if old.is_none() {
                self.entries.fetch_sub(1, Relaxed);
            }
            return Err(Fault::Limit { limit: Limit::TotalBytes, at: self.bytes_max });
        }
        Ok(())
    }

    /// Counts an existing entry, even above a limit lowered meanwhile.
    pub(crate) fn found(&self, bytes: usize) {
        self.entries.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Undoes a [`Usage::take`] with the same numbers.
    pub(crate) fn undo(&self, old: Option<usize>, new: usize) {
        self.bytes.fetch_add(old.unwrap_or(0), Relaxed);
        self.bytes.fetch_sub(new, Relaxed);
        if old.is_none() {
            self.entries.fetch_sub(1, Relaxed);
        }
    }

    /// Frees the memory of a removed entry.
    pub(crate) fn free(&self, bytes: usize) {
        self.entries.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

fn grow(level: &AtomicUsize, by: usize, most: usize) -> bool {
    level.fetch_update(Relaxed, Relaxed, |now| now.checked_add(by).filter(|after| *after <= most)).is_ok()
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
