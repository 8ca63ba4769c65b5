//! Index of idempotency keys, at a cost per key that does not grow with the batch rate.
//!
//! A random key inserted into a B-tree dirties a page of its own, and a dirty page is 4 KiB of WAL for each commit. So
//! keys are durable in the log, which only grows at its end, and the index lags behind: new keys collect in memory,
//! sorted roughly by their hashes; when there are many, they are moved to the on-disk index in order, a slice per
//! commit, so that neighbours share a page. A restart reads the log's unindexed tail and continues the move: each slice
//! commits its progress. This is the memtable of a log-structured merge tree (O'Neil et al., 1996) over one B-tree.

use std::{collections::HashMap, hash::Hasher, mem};

use siphasher::sip::SipHasher13;

use super::writer::{KeyLookup, Writer};
use crate::domain::{Entry, EntryKind, IdempotencyKey, KeyOwner};

/// A key's hash and its entry's number. The hash is signed, as `SQLite`'s integers are.
type Hashed = (i64, i64);

/// Keys in buckets by the upper bits of their hashes: an insert is a push, a search reads a few adjacent cache lines,
/// and the buckets, each sorted when due, yield all keys in order. A balanced tree of as many keys costs several times
/// as much in cache misses.
struct Table {
    buckets: Vec<Vec<Hashed>>,
    len: usize,
}

impl Table {
    /// Approximate keys per bucket in a full table.
    const BUCKET: usize = 32;

    fn for_keys(count: usize) -> Self {
        Self { buckets: vec![Vec::new(); (count / Self::BUCKET).next_power_of_two()], len: 0 }
    }

    fn bucket(&self, hash: i64) -> usize {
        // Flipping the sign bit turns `SQLite`'s signed order into that of the buckets.
        let rank = hash.cast_unsigned() ^ (1 << 63);
        // In two steps, because one bucket means a shift by all 64 bits.
        let bits = self.buckets.len().ilog2();
        usize::try_from(rank >> 1 >> (63 - bits)).unwrap_or(0)
    }

    fn insert(&mut self, key: Hashed) {
        let bucket = self.bucket(key.0);
        self.buckets[bucket].push(key);
        self.len += 1;
    }

    fn find(&self, hash: i64) -> impl Iterator<Item = i64> {
        let bucket = &self.buckets[self.bucket(hash)];
        bucket.iter().filter(move |key| key.0 == hash).map(|key| key.1)
    }
}

/// The hash by which the index has a key; `hasher` has the file's seed.
pub(super) fn key_hash(mut hasher: SipHasher13, key: &[u8], owner: KeyOwner) -> i64 {
    hasher.write(key);
    if owner != KeyOwner::COMMON {
        hasher.write_i64(owner.stored());
    }
    hasher.finish().cast_signed()
}

/// The memory part of the index.
pub(crate) struct Keys {
    hasher: SipHasher13,
    in_memory: usize,
    fresh: Table,
    moving: Option<Moving>,
    indexed_up_to: i64,
}

/// Keys being moved to disk; searched here until all are there.
struct Moving {
    keys: Table,
    buckets_done: usize,
    up_to: i64,
}

/// Entries by their keys.
#[derive(Default)]
pub(crate) struct Found {
    /// The first with each key.
    pub(crate) earlier: HashMap<IdempotencyKey, Entry>,
    /// Those that end a reservation with the key.
    pub(crate) ends: HashMap<IdempotencyKey, Entry>,
}

/// Adds the first of these entries with the key, because its caller got that answer, and for a reservation also the entry
/// that ends it; false if none has the key. Two keys can share a hash, so the entries are compared.
fn add_matching(
    lookup: &mut KeyLookup<'_>,
    mut candidates: Vec<i64>,
    key: &IdempotencyKey,
    found: &mut Found,
) -> rusqlite::Result<bool> {
    candidates.sort_unstable();
    let mut is_reserved = false;
    for number in candidates {
        let Some(entry) = lookup.entry(number)?.filter(|entry| entry.key == Some(*key)) else { continue };
        if is_reserved {
            found.ends.insert(*key, entry);
            return Ok(true);
        }
        is_reserved = entry.kind == EntryKind::Reserved;
        found.earlier.insert(*key, entry);
        if !is_reserved {
            return Ok(true);
        }
    }
    Ok(is_reserved)
}

/// A slice of the move, written in an uncommitted transaction.
#[derive(Default)]
pub(crate) struct Slice {
    buckets_done: usize,
    finishes: bool,
}

impl Keys {
    /// Reads the log's unindexed tail.
    pub(crate) fn load(writer: &Writer, in_memory: usize) -> rusqlite::Result<Self> {
        // The seed is a secret of the file, against chosen collisions.
        let hasher = SipHasher13::new_with_key(&writer.key_hash_seed()?);
        let indexed_up_to = writer.keys_indexed_up_to()?;
        let in_memory = in_memory.max(1);
        let mut keys = Self { hasher, in_memory, fresh: Table::for_keys(in_memory), moving: None, indexed_up_to };
        let moved = writer.keys_moved()?.filter(|(up_to, _)| *up_to > indexed_up_to);
        if let Some((up_to, _)) = moved {
            keys.moving = Some(Moving { keys: Table::for_keys(in_memory), buckets_done: 0, up_to });
        }
        writer.each_entry_after(indexed_up_to, |number, _, key| {
            let Some(hash) = key.map(|key| keys.hash(&key)) else { return };
            match (&mut keys.moving, moved) {
                (Some(moving), Some((up_to, through))) if number <= up_to => {
                    if hash > through {
                        moving.keys.insert((hash, number));
                    }
                }
                _ => keys.fresh.insert((hash, number)),
            }
        })?;
        Ok(keys)
    }

    /// Number up to which all entries' keys are on disk.
    pub(crate) fn indexed_up_to(&self) -> i64 {
        self.indexed_up_to
    }

    fn hash(&self, key: &IdempotencyKey) -> i64 {
        key_hash(self.hasher, key.as_bytes(), key.owner())
    }

    /// Adds a committed entry's key.
    pub(crate) fn insert(&mut self, key: &IdempotencyKey, number: i64) {
        let hash = self.hash(key);
        self.fresh.insert((hash, number));
    }

    /// The committed entries with these keys, or else with their bytes in the common space.
    pub(crate) fn find<'k>(
        &self,
        writer: &Writer,
        keys: impl Iterator<Item = &'k IdempotencyKey>,
    ) -> rusqlite::Result<Found> {
        let (mut found, mut keys) = (Found::default(), keys.peekable());
        if keys.peek().is_none() {
            return Ok(found);
        }
        let mut lookup = writer.key_lookup()?;
        for key in keys {
            if !self.find_owned(&mut lookup, key, &mut found)? && key.owner() != KeyOwner::COMMON {
                self.find_owned(&mut lookup, &key.of(KeyOwner::COMMON), &mut found)?;
            }
        }
        Ok(found)
    }

    /// Adds the entries with exactly this key; false if there are none.
    fn find_owned(
        &self,
        lookup: &mut KeyLookup<'_>,
        key: &IdempotencyKey,
        found: &mut Found,
    ) -> rusqlite::Result<bool> {
        let hash = self.hash(key);
        let moving = self.moving.iter().flat_map(|moving| moving.keys.find(hash));
        let in_memory: Vec<i64> = self.fresh.find(hash).chain(moving).collect();
        let is_in_memory = !in_memory.is_empty() && add_matching(lookup, in_memory, key, found)?;
        // A reservation may have been indexed before it ended.
        let is_end = |entry: &Entry| entry.ends_reservation();
        if is_in_memory && !found.earlier.get(key).is_some_and(is_end) {
            return Ok(true);
        }
        let indexed = lookup.numbers(hash)?;
        if indexed.is_empty() {
            return Ok(is_in_memory);
        }
        let later = if is_in_memory { found.earlier.remove(key) } else { None };
        if !add_matching(lookup, indexed, key, found)? {
            found.earlier.extend(later.map(|entry| (*key, entry)));
            return Ok(is_in_memory);
        }
        if let Some(later) = later {
            found.ends.entry(*key).or_insert(later);
        }
        Ok(true)
    }

    /// Writes a slice of the move in the open transaction, in proportion to its `arrivals` new keys. `last_number` is
    /// the newest entry passed to [`Keys::insert`].
    pub(crate) fn write_slice(
        &mut self,
        writer: &Writer,
        arrivals: usize,
        last_number: i64,
    ) -> rusqlite::Result<Slice> {
        let unindexed = usize::try_from(last_number - self.indexed_up_to).unwrap_or(0);
        if self.moving.is_none() && (self.fresh.len >= self.in_memory || unindexed >= 4 * self.in_memory) {
            let keys = mem::replace(&mut self.fresh, Table::for_keys(self.in_memory));
            self.moving = Some(Moving { keys, buckets_done: 0, up_to: last_number });
        }
        let Some(moving) = &mut self.moving else { return Ok(Slice::default()) };
        // Twice the arrivals, so that a move ends before the next is due.
        let most = 64 + 2 * arrivals;
        let (mut slice, mut buckets_done) = (Vec::with_capacity(most + Table::BUCKET), moving.buckets_done);
        for bucket in moving.keys.buckets.iter_mut().skip(moving.buckets_done) {
            if slice.len() >= most {
                break;
            }
            bucket.sort_unstable();
            slice.extend_from_slice(bucket);
            buckets_done += 1;
        }
        writer.index_keys(&slice)?;
        let finishes = buckets_done == moving.keys.buckets.len();
        if finishes {
            writer.set_keys_indexed_up_to(moving.up_to)?;
        } else if let Some((through, _)) = slice.last() {
            writer.set_keys_moved((moving.up_to, *through))?;
        }
        Ok(Slice { buckets_done, finishes })
    }

    /// Notes that the transaction of [`Keys::write_slice`] is on disk.
    pub(crate) fn slice_committed(&mut self, slice: &Slice) {
        if slice.finishes {
            self.indexed_up_to = self.moving.take().map_or(self.indexed_up_to, |moving| moving.up_to);
        } else if let Some(moving) = &mut self.moving {
            moving.buckets_done = slice.buckets_done;
        }
    }
}
