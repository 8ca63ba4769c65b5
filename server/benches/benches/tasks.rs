//! The CPU-bound task by its length, and splitting bytes into lines.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand_xoshiro::{
    Xoshiro256StarStar,
    rand_core::{RngCore as _, SeedableRng as _},
};
use tasks::{
    line::Lines,
    work::{MULTIPLES, Workspace},
};

/// A seed whose task lasts `multiple` times the shortest.
fn seed_of(multiple: usize) -> u64 {
    let first = |seed| Xoshiro256StarStar::seed_from_u64(seed).next_u64() % 16;
    let lasts = |seed: &u64| usize::try_from(first(*seed)).is_ok_and(|draw| MULTIPLES[draw] == multiple);
    (0..10_000).find(lasts).unwrap_or_default()
}

fn work(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cpu task");
    let mut workspace = Workspace::default();
    for multiple in [1, 4, 16, 64, 256] {
        let seed = seed_of(multiple);
        group.bench_with_input(BenchmarkId::from_parameter(multiple), &seed, |bencher, seed| {
            bencher.iter(|| workspace.run(black_box(*seed)));
        });
    }
    group.finish();
}

fn lines(criterion: &mut Criterion) {
    let bytes = b"0:42\n1:18446744073709551615\r\n 1:ignored:7 \n".repeat(100);
    let mut group = criterion.benchmark_group("lines");
    group.throughput(Throughput::Elements(300));
    group.bench_function("cut", |bencher| {
        let mut lines = Lines::new(256);
        bencher.iter(|| {
            let mut input = black_box(&bytes[..]);
            std::iter::from_fn(|| lines.next(&mut input)).count()
        });
    });
    group.finish();
}

criterion_group!(benches, work, lines);
criterion_main!(benches);
