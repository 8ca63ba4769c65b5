//! The entries in memory: the map, and the index, usage and watchers that must agree with it. All change together while
//! the key's map slot is briefly locked; no call waits for another's work.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use scc::hash_map::{self, HashMap, OccupiedEntry, VacantEntry};

use crate::{
    clock::Clock,
    entry::{Entry, Key, Value, Version, entry_bytes},
    expiry::Expiries,
    fault::Fault,
    index::Index,
    settings::Limits,
    usage::Usage,
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
                    self.hub.tell(EventKind::Expired, place.key(), None, self.next_version());
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
        self.hub.tell(EventKind::Put, place.key(), Some(&entry.value), entry.version);
        place.insert_entry(entry);
    }

    fn replace(&self, mut place: OccupiedEntry<'_, Key, Entry>, entry: Entry) {
        self.expiries.remove(place.get());
        self.expiries.add(place.key(), &entry);
        self.hub.tell(EventKind::Put, place.key(), Some(&entry.value), entry.version);
        place.insert(entry);
    }

    fn take_out(&self, place: OccupiedEntry<'_, Key, Entry>, kind: EventKind, version: Version) {
        self.index.remove(place.key());
        self.expiries.remove(place.get());
        self.usage.free(entry_bytes(place.key(), &place.get().value));
        self.hub.tell(kind, place.key(), None, version);
        let _ = place.remove_entry();
    }

    /// Puts an entry committed by the journal, with memory already reserved.
    pub(crate) fn put_decided(&self, key: Key, entry: Entry) {
        match self.map.entry_sync(key) {
            hash_map::Entry::Occupied(place) => {
                if matches!(self.presence(place.get()), Present::Expired(_)) {
                    self.hub.tell(EventKind::Expired, place.key(), None, entry.version);
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
