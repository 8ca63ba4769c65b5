//! Durable purchases per second: group commit against one transaction each, by purchases in flight.
//!
//! `cargo bench -p benches --bench ledger`, pinned to one core (`taskset -c 0`) for the figures in the notebook;
//! `cargo test --benches` runs each once. The store is on the disk that holds the build.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use bookstore::{Actor, Bookstore, CommitMode, IdempotencyKey, Settings, Verdict, domain::BookId, metrics::Metrics};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::{StreamExt, stream};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256StarStar;
use tokio::runtime::{Builder, Runtime};

const WAITING: [u32; 5] = [1, 8, 32, 128, 512];

/// Keeps `waiting` purchases in flight until `count` were answered.
fn buy(
    runtime: &Runtime,
    store: &Bookstore,
    keys: Option<&mut Xoshiro256StarStar>,
    count: u64,
    waiting: u32,
) -> Duration {
    let ids = [12365, 12498, 53477, 53573].map(|id| BookId::new(id).expect("a valid id"));
    let mut keys = keys;
    let purchases = ids.into_iter().cycle().take(usize::try_from(count).expect("fits")).map(|id| {
        let key = keys.as_mut().and_then(|keys| {
            let mut bytes = [0; 16];
            keys.fill_bytes(&mut bytes);
            IdempotencyKey::from_wire(&bytes).expect("a valid key")
        });
        store.buy(id, 1, key, None)
    });
    let start = Instant::now();
    runtime.block_on(async {
        let mut answers = stream::iter(purchases).buffer_unordered(usize::try_from(waiting).expect("fits"));
        while let Some(answer) = answers.next().await {
            assert_eq!(answer.expect("no fault").verdict, Verdict::Bought);
        }
    });
    start.elapsed()
}

fn ledger(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    for (name, commit, keyed) in [
        ("group", CommitMode::Group, false),
        ("group, random keys", CommitMode::Group, true),
        ("each", CommitMode::Each, false),
        ("each, random keys", CommitMode::Each, true),
    ] {
        let mut group = criterion.benchmark_group(format!("purchase, {name}"));
        group.sample_size(10).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(4));
        for waiting in WAITING {
            let folder = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("a folder");
            let settings = Settings { commit, ..Settings::default() };
            let store =
                Bookstore::open(&folder.path().join("bookstore.db"), settings, Metrics::default()).expect("a store");
            runtime.block_on(store.restock(i64::from(i32::MAX), Actor::console())).expect("stock");
            let mut keys = keyed.then(|| Xoshiro256StarStar::seed_from_u64(1));
            // A sample is some rounds of `waiting` purchases, so that a slow configuration does not run for minutes.
            group.throughput(Throughput::Elements(waiting.into()));
            group.bench_function(BenchmarkId::from_parameter(waiting), |bencher| {
                bencher
                    .iter_custom(|rounds| buy(&runtime, &store, keys.as_mut(), rounds * u64::from(waiting), waiting));
            });
            assert!(store.close(Duration::from_secs(30)), "the store closes");
        }
        group.finish();
    }
}

criterion_group!(benches, ledger);
criterion_main!(benches);
