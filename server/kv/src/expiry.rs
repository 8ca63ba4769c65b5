//! Finds the entries that expire next. Has each entry with a time to live once.

use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    sync::{Mutex, PoisonError},
};

use crate::entry::{Entry, Key, Version};

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
