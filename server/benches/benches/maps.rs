//! Candidate concurrent maps under the service's load: reads of small entries, conditional writes, and both at once
//! from two threads.
//!
//! `cargo bench -p benches --bench maps`; `cargo test --benches` runs each once on fewer keys.

use std::{
    hint::black_box,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

type Key = Arc<[u8]>;

#[derive(Clone)]
struct Entry {
    value: Bytes,
    version: u64,
    _expires_at_ms: u64,
}

/// Keys in the map: a million when measured.
fn keys() -> usize {
    if std::env::args().any(|argument| argument == "--bench") { 1_000_000 } else { 1000 }
}

fn key(number: usize) -> Key {
    Key::from(&*format!("{:016x}", (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes())
}

fn entry() -> Entry {
    Entry { value: Bytes::copy_from_slice(&[7; 100]), version: 1, _expires_at_ms: 0 }
}

trait Map: Send + Sync {
    fn read(&self, key: &[u8]) -> u64;
    /// Replaces an entry, with its version known, in one atomic step.
    fn update(&self, key: Key, entry: Entry);
}

impl Map for scc::HashMap<Key, Entry> {
    fn read(&self, key: &[u8]) -> u64 {
        self.read_sync(key, |_, entry| entry.version + u64::from(entry.value[0])).unwrap_or(0)
    }

    fn update(&self, key: Key, mut entry: Entry) {
        match self.entry_sync(key) {
            scc::hash_map::Entry::Occupied(mut place) => {
                entry.version = place.get().version + 1;
                place.insert(entry);
            }
            scc::hash_map::Entry::Vacant(place) => drop(place.insert_entry(entry)),
        }
    }
}

impl Map for dashmap::DashMap<Key, Entry> {
    fn read(&self, key: &[u8]) -> u64 {
        self.get(key).map_or(0, |entry| entry.version + u64::from(entry.value[0]))
    }

    fn update(&self, key: Key, mut entry: Entry) {
        match self.entry(key) {
            dashmap::Entry::Occupied(mut place) => {
                entry.version = place.get().version + 1;
                place.insert(entry);
            }
            dashmap::Entry::Vacant(place) => drop(place.insert(entry)),
        }
    }
}

impl Map for papaya::HashMap<Key, Entry> {
    fn read(&self, key: &[u8]) -> u64 {
        self.pin().get(key).map_or(0, |entry| entry.version + u64::from(entry.value[0]))
    }

    fn update(&self, key: Key, entry: Entry) {
        self.pin().update_or_insert_with(
            key,
            |old| Entry { version: old.version + 1, ..entry.clone() },
            || entry.clone(),
        );
    }
}

fn all() -> [(&'static str, Arc<dyn Map>); 3] {
    let maps: [(&str, Arc<dyn Map>); 3] = [
        ("scc", Arc::new(scc::HashMap::<Key, Entry>::default())),
        ("dashmap", Arc::new(dashmap::DashMap::<Key, Entry>::default())),
        ("papaya", Arc::new(papaya::HashMap::<Key, Entry>::default())),
    ];
    for (_, map) in &maps {
        (0..keys()).for_each(|number| map.update(key(number), entry()));
    }
    maps
}

/// Reads and, one time in five, writes; returns the duration.
fn mixed(map: &dyn Map, keys: &[Key], rounds: u64) -> Duration {
    let start = Instant::now();
    for (round, key) in (0..rounds).zip(keys.iter().cycle()) {
        if round % 5 == 0 {
            map.update(Key::clone(key), entry());
        } else {
            black_box(map.read(key));
        }
    }
    start.elapsed()
}

fn maps(criterion: &mut Criterion) {
    let keys: Vec<Key> = (0..keys()).map(key).collect();
    let maps = all();
    let mut group = criterion.benchmark_group("maps");
    group.measurement_time(Duration::from_secs(2)).sample_size(20);
    for (name, map) in &maps {
        let mut next = keys.iter().cycle();
        group.bench_function(BenchmarkId::new("read", name), |bencher| {
            bencher.iter(|| black_box(map.read(next.next().expect("endless"))));
        });
    }
    for (name, map) in &maps {
        let mut next = keys.iter().cycle();
        group.bench_function(BenchmarkId::new("update", name), |bencher| {
            bencher.iter(|| map.update(Key::clone(next.next().expect("endless")), entry()));
        });
    }
    for (name, map) in &maps {
        group.bench_function(BenchmarkId::new("two threads, 80% reads", name), |bencher| {
            bencher.iter_custom(|rounds| {
                thread::scope(|scope| {
                    let other = scope.spawn(|| mixed(&**map, &keys[keys.len() / 2..], rounds));
                    mixed(&**map, &keys, rounds).max(other.join().expect("no panic"))
                })
            });
        });
    }
    group.finish();
}

criterion_group!(benches, maps);
criterion_main!(benches);
