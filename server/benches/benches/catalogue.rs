//! In-memory reads: a lookup, searches by number of hits, and loading a million books.
//!
//! `cargo bench -p benches --bench catalogue`; `cargo test --benches` runs each once on fewer books.

use std::{hint::black_box, path::Path, time::Duration};

use bookstore::{Bookstore, Fault, Settings, domain::BookId, exchange, generate, metrics::Metrics};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::FutureExt as _;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256StarStar;

/// Books in the catalogue: a million when measured.
fn rows() -> u64 {
    if std::env::args().any(|argument| argument == "--bench") { 1_000_000 } else { 2_000 }
}

/// Result of a read from memory, which never waits.
fn now<T>(read: impl Future<Output = Result<T, Fault>>) -> T {
    read.now_or_never().expect("an answer at once").expect("no fault")
}

fn catalogue(criterion: &mut Criterion) {
    let folder = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("a folder");
    let path = folder.path().join("bookstore.db");
    let mut csv = Vec::new();
    generate::catalogue(&mut csv, 100_000, rows(), 1).expect("a catalogue");
    let options = exchange::Options { progress: &mut |_| {}, skip_bad: None, sample: true };
    exchange::import(&path, &*csv, &Settings::default(), options).expect("an import");
    drop(csv);
    let open = || Bookstore::open(&path, Settings::default(), Metrics::default()).expect("a store");

    let mut loading = criterion.benchmark_group("load");
    loading.sample_size(10).measurement_time(Duration::from_secs(20)).throughput(Throughput::Elements(rows()));
    loading.bench_function(rows().to_string(), |bencher| bencher.iter_with_large_drop(open));
    loading.finish();

    let store = open();
    let books = now(store.list(None, 1000));
    let topics: Vec<String> = books.items.iter().map(|book| book.topic().to_owned()).collect();
    let mut random = Xoshiro256StarStar::seed_from_u64(2);
    let mut ids = Vec::new();
    let mut after = None;
    loop {
        let page = now(store.list(after, 1000));
        ids.extend(page.items.iter().map(|book| book.id()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    // In random order, but read in sequence, so that choosing the next book costs no time.
    let mut shuffled = ids.clone();
    for place in (1..shuffled.len()).rev() {
        let other = random.next_u64() % (place as u64 + 1);
        shuffled.swap(place, usize::try_from(other).expect("fits"));
    }
    for (name, ids) in [("all books at random", &shuffled[..]), ("a thousand popular books", &shuffled[..1000])] {
        let mut next = ids.iter().cycle();
        criterion.bench_function(&format!("lookup, {name}"), |bencher| {
            // As the gRPC transport does it: the published catalogue, the book, its stock and price.
            bencher.iter(|| {
                let catalogue = store.catalogue().expect("a catalogue in memory");
                let book = catalogue.get(*next.next().expect("endless")).expect("a book");
                black_box((book.stock(), book.price()))
            });
        });
    }
    criterion.bench_function("lookup, no such book", |bencher| {
        let id = BookId::new(1).expect("an id");
        bencher.iter(|| black_box(now(store.lookup(id)).is_none()));
    });

    let mut search = criterion.benchmark_group("search");
    let mut sizes: Vec<(usize, &String)> = topics.iter().map(|topic| (now(store.search(topic)).len(), topic)).collect();
    sizes.sort_unstable();
    for (size, topic) in [sizes[0], sizes[sizes.len() / 2], sizes[sizes.len() - 1]] {
        search.throughput(Throughput::Elements(size as u64));
        search.bench_with_input(BenchmarkId::new("books", size), topic, |bencher, topic| {
            // As a transport would: every field of every book is read.
            let read = |book: &std::sync::Arc<bookstore::catalogue::Book>| {
                book.title().len() as u64 + book.topic().len() as u64 + u64::from(book.stock())
            };
            bencher.iter(|| {
                let found = now(store.search(topic));
                black_box(found.iter().map(read).sum::<u64>())
            });
        });
    }
    search.finish();
}

criterion_group!(benches, catalogue);
criterion_main!(benches);
