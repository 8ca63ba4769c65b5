//! Finds the entry that holds an idempotency key, at a cost per key that does not grow with the batch rate.
//!
//! A random key inserted into a B-tree dirties a page of its own, and a dirty page is 4 KiB of WAL for each
//! commit. So keys are durable in the log, which only grows at its end, and the index follows later: new keys
//! collect in memory in the order of their hashes; when there are many, they are moved to the on-disk index a
//! slice a commit, in order, so that neighbours share a page. A restart reads the log's unindexed tail back.
//! This is the memtable of a log-structured merge tree (O'Neil et al., 1996) over one B-tree.
//!
//! Must not know what a purchase is, nor when a transaction begins or ends.

use std::{collections::BTreeSet, hash::Hasher, mem};

use siphasher::sip::SipHasher13;

use crate::{
    domain::{Entry, IdempotencyKey},
    store::Writer,
};

/// A key's hash and the number of its entry. `SQLite` keeps signed integers, so the hash is one.
type Hashed = (i64, i64);

/// The memory part of the index.
pub(crate) struct Keys {
    hasher: SipHasher13,
    in_memory: usize,
    fresh: BTreeSet<Hashed>,
    moving: Option<Moving>,
    indexed_up_to: i64,
}

/// Keys on their way to the disk; they stay findable here until all are there.
struct Moving {
    keys: BTreeSet<Hashed>,
    done: Option<Hashed>,
    up_to: i64,
}

/// A slice of the move that was written in a transaction not yet committed.
#[derive(Default)]
pub(crate) struct Slice {
    last: Option<Hashed>,
    finishes: bool,
}

impl Keys {
    /// Reads the log's unindexed tail.
    pub(crate) fn load(writer: &mut Writer<'_>, in_memory: usize) -> rusqlite::Result<Self> {
        // The seed is secret to the file, so that nobody can choose keys that share a hash.
        let hasher = SipHasher13::new_with_key(&writer.key_hash_seed()?);
        let indexed_up_to = writer.keys_indexed_up_to()?;
        let mut keys =
            Self { hasher, in_memory: in_memory.max(1), fresh: BTreeSet::new(), moving: None, indexed_up_to };
        writer.each_entry_after(indexed_up_to, |number, _, key| {
            if let Some(key) = key {
                keys.insert(&key, number);
            }
        })?;
        Ok(keys)
    }

    fn hash(&self, key: &IdempotencyKey) -> i64 {
        let mut hasher = self.hasher;
        hasher.write(key.as_bytes());
        hasher.finish().cast_signed()
    }

    /// Takes note of a committed entry's key.
    pub(crate) fn insert(&mut self, key: &IdempotencyKey, number: i64) {
        self.fresh.insert((self.hash(key), number));
    }

    /// The committed entry with this key.
    pub(crate) fn find(&self, writer: &mut Writer<'_>, key: &IdempotencyKey) -> rusqlite::Result<Option<Entry>> {
        let hash = self.hash(key);
        let range = (hash, i64::MIN)..=(hash, i64::MAX);
        let moving = self.moving.iter().flat_map(|moving| moving.keys.range(range.clone()));
        let mut candidates: Vec<i64> = self.fresh.range(range.clone()).chain(moving).map(|found| found.1).collect();
        if candidates.is_empty() {
            candidates = writer.numbers_of_key(hash)?;
        }
        // Two keys can share a hash, so the entry decides; the first one, as it is what its caller was told.
        candidates.sort_unstable();
        for number in candidates {
            if let Some(entry) = writer.entry(number)?.filter(|entry| entry.key == Some(*key)) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Writes a part of the move in the open transaction; `arrivals` keys came with it. `last_number` is the
    /// newest entry that [`Keys::insert`] has been told of.
    pub(crate) fn write_slice(
        &mut self,
        writer: &mut Writer<'_>,
        arrivals: usize,
        last_number: i64,
    ) -> rusqlite::Result<Slice> {
        let unindexed = usize::try_from(last_number - self.indexed_up_to).unwrap_or(0);
        if self.moving.is_none() && (self.fresh.len() >= self.in_memory || unindexed >= 4 * self.in_memory) {
            self.moving = Some(Moving { keys: mem::take(&mut self.fresh), done: None, up_to: last_number });
        }
        let Some(moving) = &self.moving else { return Ok(Slice::default()) };
        // Twice the arrivals, so that a move is over before the next one is due.
        let most = 64 + 2 * arrivals;
        let start = moving.done.map_or((i64::MIN, i64::MIN), |(hash, number)| (hash, number + 1));
        let slice: Vec<Hashed> = moving.keys.range(start..).take(most).copied().collect();
        writer.index_keys(&slice)?;
        let finishes = slice.len() < most;
        if finishes {
            writer.set_keys_indexed_up_to(moving.up_to)?;
        }
        Ok(Slice { last: slice.last().copied(), finishes })
    }

    /// The transaction of [`Keys::write_slice`] is on disk.
    pub(crate) fn slice_committed(&mut self, slice: &Slice) {
        if slice.finishes {
            self.indexed_up_to = self.moving.take().map_or(self.indexed_up_to, |moving| moving.up_to);
        } else if let (Some(moving), Some(_)) = (&mut self.moving, slice.last) {
            moving.done = slice.last;
        }
    }
}
