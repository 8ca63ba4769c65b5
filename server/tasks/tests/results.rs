//! Results of tasks, compared with independently computed values and with a literal implementation of the definition.

use std::time::Duration;

use proptest::prelude::*;
use rand::Rng as _;
use rand_xoshiro::{Xoshiro256StarStar, rand_core::SeedableRng as _};
use tasks::{
    Concurrency,
    chain::{Forecast, Plan},
    task::Io,
    work::{End, MEMORY_BYTES, MULTIPLES, ROUNDS_MIN, Workspace},
};

/// The definition, implemented literally.
fn as_written(seed: u64) -> End {
    let mut numbers = Xoshiro256StarStar::seed_from_u64(seed);
    let mut data = vec![0_u8; MEMORY_BYTES];
    let rounds = MULTIPLES[numbers.r#gen::<usize>() % 16] * ROUNDS_MIN;
    let mut dep = 0_u8;
    for _ in 0..rounds {
        let index = numbers.r#gen::<usize>().wrapping_add(dep.into()) % MEMORY_BYTES;
        data[index] = data[index].wrapping_add(numbers.r#gen());
        dep = dep.wrapping_add(data[index]);
    }
    End { result: data[numbers.r#gen::<usize>().wrapping_add(dep.into()) % MEMORY_BYTES], dep }
}

/// Computed in Python from the definition, with splitmix64 and xoshiro256** after their authors' published C sources
/// (Blackman and Vigna, prng.di.unimi.it): seed, multiple, result and the last sum.
const CPU: [(u64, usize, u8, u8); 12] = [
    (0, 1, 0, 99),
    (1, 1, 0, 19),
    (68, 1, 180, 88),
    (u64::MAX, 1, 0, 47),
    (20, 4, 0, 72),
    (32, 4, 0, 161),
    (10, 16, 0, 103),
    (28, 16, 0, 84),
    (40, 64, 0, 163),
    (41, 64, 137, 215),
    (8, 256, 0, 69),
    (11, 256, 0, 19),
];

/// Computed in Python: PCG-XSH-RR seeding, `ChaCha20` after RFC 8439 with a counter of 64 bits, and a range by widening
/// multiplication: seed, wait in milliseconds, result.
const IO: [(u64, u64, u8); 8] = [
    (0, 48, 168),
    (1, 1238, 198),
    (2, 143, 172),
    (7, 46, 144),
    (42, 1028, 153),
    (255, 37, 188),
    (1_000_000_007, 901, 14),
    (u64::MAX, 498, 173),
];

#[test]
fn cpu_tasks_give_what_was_worked_out_by_other_means() {
    let mut workspace = Workspace::default();
    for (seed, multiple, result, dep) in CPU {
        assert_eq!(workspace.end_of(seed), End { result, dep }, "seed {seed}, {multiple} times the shortest");
        assert_eq!(as_written(seed), End { result, dep }, "seed {seed}, as written");
    }
}

#[test]
fn io_tasks_give_what_was_worked_out_by_other_means() {
    for (seed, wait_ms, result) in IO {
        assert_eq!(Io::new(seed), Io { wait: Duration::from_millis(wait_ms), result }, "seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// In one workspace, so that anything a task leaves behind shows in a later one.
    #[test]
    fn cpu_tasks_end_as_the_definition_does_whatever_ran_before(seeds in prop::collection::vec(any::<u64>(), 1..4)) {
        let mut workspace = Workspace::default();
        for seed in seeds {
            prop_assert_eq!(workspace.end_of(seed), as_written(seed), "seed {}", seed);
        }
    }
}

#[test]
fn the_published_chains_come_to_the_published_sum() {
    let forecast = Forecast::new(Plan { clients: 40, requests: 20, seed: 1 });
    assert_eq!(forecast.last.iter().copied().map(u32::from).sum::<u32>(), 3802);
    let bound = |concurrency, cache| forecast.bound(concurrency, cache).as_secs_f64();
    eprintln!(
        "shortest times in seconds: none {}, concurrent {}, concurrent and cached {}",
        bound(Concurrency::None, false),
        bound(Concurrency::Task, false),
        bound(Concurrency::Task, true),
    );
    assert!(bound(Concurrency::Task, true) < bound(Concurrency::Task, false));
    assert!(bound(Concurrency::Task, false) < bound(Concurrency::None, false));
}
