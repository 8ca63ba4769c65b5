//! A campaign of disk faults: rounds of random work on the stores, each with faults chosen by its seed, and each judged
//! by what was acknowledged ([docs/durability.md](../../../docs/durability.md)).
//!
//! `campaign --rounds 10000 --seed 1 --jobs 2` prints a table; `campaign --rounds 1 --seed N` runs one round again;
//! with `--faults 0` lives end, by kills and power cuts too, without a fault before. The faults are those of a disk
//! (`disk.c`, `trace.rs`); threads of a process still take turns as the kernel lets them, so a round of the same seed
//! is alike, but not always the same.
//!
//! Damage that a round makes must be noticed or harmless; after all other faults nothing may be missing, and no start
//! be refused.

mod judge;
mod keys;
mod random;
mod round;
mod shop;
mod trace;

use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    process::{Command, ExitCode},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use anyhow::{Context as _, bail, ensure};

use crate::{
    judge::{Finding, Subject, Work},
    round::{Bench, Outcome},
};

/// For the traces and files of a round.
const ROOM_BYTES: u64 = 512 << 20;
const SHIM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/disk.c");

#[derive(Debug)]
struct Options {
    rounds: u64,
    seed: u64,
    jobs: u64,
    /// Failures after which it stops.
    failures: u64,
    /// Zero for lives that only end.
    faults: u64,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Self { rounds: 100, seed: 1, jobs: 1, failures: 10, faults: 1 };
        while let Some(name) = words.next() {
            let value = words.next().and_then(|value| value.parse().ok());
            let value = value.with_context(|| format!("{name} needs a number"))?;
            match name.as_str() {
                "--rounds" => options.rounds = value,
                "--seed" => options.seed = value,
                "--jobs" => options.jobs = value,
                "--failures" => options.failures = value,
                "--faults" => options.faults = value,
                _ => bail!("`{name}` is none of --rounds N, --seed N, --jobs N, --failures N and --faults N"),
            }
        }
        Ok(options)
    }
}

/// A process under test, by the words that `round.rs` gives it.
fn work(words: &[String]) -> anyhow::Result<()> {
    let [subject, seed, tag, steps, end, folder] = words else { bail!("six words") };
    let (seed, steps) = (seed.parse::<u64>()?, steps.parse()?);
    let own = tag.bytes().fold(seed, |sum, byte| sum.rotate_left(8) ^ u64::from(byte));
    let work = Work { folder: folder.into(), seed: own, tag: tag.clone(), steps, closes: end == "close" };
    if subject == "shop" {
        shop::work(&work);
    } else {
        keys::work(&work);
    }
    if !work.closes {
        // The disk kills it.
        let _ = fs::File::open(work.folder.join("die"));
        bail!("the disk does not end the process");
    }
    Ok(())
}

/// Judges files by the lines of processes.
fn audit(words: &[String]) -> anyhow::Result<()> {
    let [subject, folder, lines] = words else { bail!("three words") };
    let said: Vec<String> = fs::read_to_string(lines)?.lines().map(str::to_owned).collect();
    let audit = if subject == Subject::Shop.name() { shop::audit } else { keys::audit };
    judge::say(&audit(Path::new(folder), &said).line());
    Ok(())
}

/// The folder of rounds, with the shim and the stores that they begin with.
fn bench(folder: &Path) -> anyhow::Result<Bench> {
    let bench = Bench { folder: folder.to_owned(), program: env::current_exe()?, shim: folder.join("disk.so") };
    let built = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&bench.shim).arg(SHIM).status();
    ensure!(built.context("a C compiler, cc, is installed")?.success(), "{SHIM} compiles");
    for (name, is_large) in [("small", false), ("large", true)] {
        fs::create_dir(folder.join(name))?;
        shop::found(&folder.join(name), is_large)?;
    }
    Ok(bench)
}

/// Rounds by class of fault.
#[derive(Debug, Default)]
struct Row {
    rounds: u64,
    hits: u64,
    whole: u64,
    noticed: u64,
    failed: u64,
    acknowledged: usize,
}

impl Row {
    fn add(&mut self, outcome: &Outcome) {
        self.rounds += 1;
        self.hits += outcome.hits;
        match (&outcome.failure, &outcome.finding) {
            (Some(_), _) => self.failed += 1,
            (None, Finding::Whole(count)) => {
                self.whole += 1;
                self.acknowledged += count;
            }
            (None, _) => self.noticed += 1,
        }
    }
}

#[expect(clippy::print_stdout, reason = "its report")]
fn campaign(options: &Options) -> anyhow::Result<bool> {
    let memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(memory).is_ok_and(|is| is.f_bavail * is.f_frsize > ROOM_BYTES * options.jobs);
    let folder = if has_room { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let folder_path = fs::canonicalize(folder.path())?;
    let bench = bench(&folder_path)?;
    let (next, rows) = (AtomicU64::new(0), Mutex::new(BTreeMap::<String, Row>::new()));
    let failures = AtomicU64::new(0);
    let run = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= options.rounds || failures.load(Relaxed) >= options.failures {
                return;
            }
            let seed = options.seed + number;
            match round::run(&bench, seed, options.faults > 0) {
                Ok(outcome) => {
                    if let Some(plan) = &outcome.failure {
                        failures.fetch_add(1, Relaxed);
                        println!("seed {seed}: {:?}\n  {plan}", outcome.finding);
                    } else if options.rounds == 1 {
                        println!("{outcome:?}");
                    }
                    rows.lock().expect("no panic").entry(outcome.class.clone()).or_default().add(&outcome);
                }
                Err(reason) => {
                    failures.fetch_add(1, Relaxed);
                    println!("seed {seed}: {reason:#}");
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(run);
        }
    });
    println!(
        "{:<40} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "fault of the last life", "rounds", "faults", "whole", "noticed", "failed"
    );
    let (mut sum, rows) = (Row::default(), rows.into_inner().expect("no panic"));
    for (class, row) in &rows {
        println!("{class:<40} {:>7} {:>7} {:>7} {:>7} {:>7}", row.rounds, row.hits, row.whole, row.noticed, row.failed);
        sum.rounds += row.rounds;
        sum.hits += row.hits;
        sum.whole += row.whole;
        sum.noticed += row.noticed;
        sum.acknowledged += row.acknowledged;
    }
    let failed = failures.into_inner();
    println!("{:<40} {:>7} {:>7} {:>7} {:>7} {failed:>7}", "all", sum.rounds, sum.hits, sum.whole, sum.noticed);
    println!("{} acknowledged answers found again", sum.acknowledged);
    Ok(failed == 0)
}

#[expect(clippy::print_stderr, reason = "its errors")]
fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("work") => work(&words[1..]).map(|()| true),
        Some("audit") => audit(&words[1..]).map(|()| true),
        _ => Options::parse(words.into_iter()).and_then(|options| campaign(&options)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason:#}");
            ExitCode::from(2)
        }
    }
}
