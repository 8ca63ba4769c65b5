//! Models of each protocol, which check every reply of the server to random histories, in process.
//!
//! `cargo run --release -p fuzz --example models -- PROTOCOL COUNT [SEED]`; PROTOCOL may be `all`. Input number n of a
//! run is input 0 of a run with SEED + n.

mod calls;
mod game;
mod keys;
mod pipe;
mod random;
mod records;
mod shop;
mod tally;
mod tasks;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use tempfile::TempDir;

use crate::random::Random;
use crate::tally::Tally;

/// Checks one input, and panics at the first reply that differs from the model's.
type Judge = Box<dyn FnMut(&mut Random, &mut Tally)>;

/// Creates a judge for a series of inputs.
type Begin = fn() -> Judge;

const PROTOCOLS: [(&str, Begin); 7] = [
    ("calls", calls::judge),
    ("tasks", tasks::judge),
    ("game", game::unary),
    ("lean", game::lean),
    ("keys", keys::judge),
    ("shop", shop::judge),
    ("records", records::judge),
];

/// A folder for a server's files, in memory if possible.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn run(name: &str, judge: Begin, count: u64, seed: u64) -> bool {
    let (mut judge, mut tally, began) = (judge(), Tally::default(), Instant::now());
    for input in 0..count {
        let seed = seed.wrapping_add(input);
        let mut random = Random::new(seed);
        if catch_unwind(AssertUnwindSafe(|| judge(&mut random, &mut tally))).is_err() {
            println!("{name}: 1 failed, after {input} inputs; again: models {name} 1 {seed}");
            return false;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{name}: 1 passed: {count} inputs, {} replies judged, {seconds:.1} s", tally.total());
    for (kind, replies) in tally.kinds() {
        println!("    {replies:>10} {kind}");
    }
    true
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments.get(place).and_then(|text| text.parse().ok());
    let name = arguments.first().map_or("", String::as_str);
    let chosen: Vec<_> = PROTOCOLS.iter().filter(|(known, _)| name == "all" || name == *known).collect();
    let (Some(count), false) = (number(1), chosen.is_empty()) else {
        eprintln!(
            "usage: models PROTOCOL COUNT [SEED]; PROTOCOL is all or one of {:?}",
            PROTOCOLS.map(|known| known.0)
        );
        return ExitCode::from(2);
    };
    let good = chosen.iter().all(|(name, judge)| run(name, *judge, count, number(2).unwrap_or(0)));
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
