//! Starts with a log whose end a crash tore, or whose middle is damaged. The logs are copies of the files of an open
//! store, as a killed process leaves them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kv::{Clock, Durability, KeyValue, Limits, OpenError, Settings, StoreKind};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256StarStar;
use tempfile::TempDir;

use super::{Store, value};

/// Zeros.
const BLOCK: [u8; 4096] = [0; 4096];

/// A store's files, and the end of each batch in its log.
struct Crashed {
    store: Store,
    ends: Vec<usize>,
}

const LARGE_BYTES: usize = 20_000;

/// Position of the number in a batch.
const NUMBER: std::ops::Range<usize> = 5..13;

impl Crashed {
    /// Keys `0` to `4`; the last one has a large or a small value.
    async fn new(last_is_large: bool) -> Self {
        let store = Store::open((StoreKind::Concurrent, Durability::Log), Limits::default());
        let mut crashed = Self { store, ends: Vec::new() };
        for key in 0..5u8 {
            let bytes = if key == 4 && last_is_large { LARGE_BYTES } else { 30 };
            crashed.store.kv.create(&[key], value(&vec![key + 1; bytes]), None).await.expect("created");
            crashed.ends.push(crashed.log().len());
        }
        crashed
    }

    fn path(&self) -> PathBuf {
        let files = fs::read_dir(self.store.folder.path()).expect("a folder");
        let logs: Vec<_> = files.map(|file| file.expect("a file").path()).filter(|path| is_log(path)).collect();
        assert_eq!(logs.len(), 1, "{logs:?}");
        logs.into_iter().next().expect("a log")
    }

    /// The log without trailing zeros.
    fn log(&self) -> Vec<u8> {
        let mut log = fs::read(self.path()).expect("the log");
        // Whole blocks first, since byte by byte takes seconds in a debug build.
        let blocks = log.rchunks(BLOCK.len()).take_while(|block| **block == BLOCK[..block.len()]).count();
        log.truncate(log.len().saturating_sub(blocks * BLOCK.len()));
        log.truncate(log.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        log
    }

    /// The same store with another log, in a new folder.
    fn with_log(&self, log: &[u8]) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        copy(self.store.folder.path(), folder.path());
        let path = folder.path().join(self.path().file_name().expect("a name"));
        fs::write(&path, log).expect("written");
        (folder, path)
    }

    /// Asserts that the store opens, has only the first keys, and stays usable.
    async fn has_first(&self, keys: u8, log: &[u8], what: &str) {
        let (folder, _) = self.with_log(log);
        for life in 0..2u8 {
            let kv = open(folder.path()).unwrap_or_else(|error| panic!("{what}, start {life}: {error}"));
            for key in 0..5u8 {
                let found = kv.retrieve(&[key]).await.ok().map(|entry| entry.value.bytes()[0]);
                assert_eq!(found, (key < keys).then_some(key + 1), "{what}, start {life}, key {key}");
            }
            for before in 0..life {
                assert!(
                    kv.retrieve(&[100 + before]).await.is_ok(),
                    "{what}, start {life}, written after start {before}"
                );
            }
            kv.create(&[100 + life], value(b"later"), None).await.expect("created");
            assert!(kv.close(std::time::Duration::from_secs(30)));
        }
    }

    /// Asserts that the store does not open, names the damaged batch's offset, and leaves the log unchanged.
    fn is_damaged_at(&self, offset: usize, log: &[u8], what: &str) {
        let (folder, path) = self.with_log(log);
        let Err(refused) = open(folder.path()) else { panic!("{what}: opened") };
        let said = refused.to_string();
        assert!(matches!(refused, OpenError::Damaged { .. }), "{what}: {said}");
        let place = format!("{} is damaged at byte {offset},", path.display());
        assert!(said.contains(&place), "{what}: {said} does not say: {place}");
        assert!(fs::read(&path).expect("the log") == log, "{what}: the log was changed");
    }
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|is| is == "jnl")
}

fn copy(from: &Path, to: &Path) {
    for file in fs::read_dir(from).expect("a folder") {
        let path = file.expect("a file").path();
        let into = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            fs::create_dir(&into).expect("a folder");
            copy(&path, &into);
        } else if !is_log(&path) {
            fs::copy(&path, &into).expect("copied");
        }
    }
}

fn open(folder: &Path) -> Result<KeyValue, OpenError> {
    let settings = Settings { durability: Durability::Log, ..Settings::default() };
    KeyValue::open(folder, settings, Clock::Wall)
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Xoshiro256StarStar::seed_from_u64(7).fill_bytes(&mut noise);
    noise
}

#[tokio::test]
async fn a_log_cut_off_anywhere_in_its_last_batch_loses_that_batch_alone() {
    let crashed = Crashed::new(false).await;
    let log = crashed.log();
    crashed.has_first(5, &log, "whole").await;
    for cut in (crashed.ends[3]..log.len()).step_by(5).chain([log.len() - 1]) {
        crashed.has_first(4, &log[..cut], &format!("cut at {cut}")).await;
    }
}

#[tokio::test]
async fn zeros_from_anywhere_in_the_last_batch_on_lose_that_batch_alone() {
    let crashed = Crashed::new(false).await;
    let log = crashed.log();
    for place in (crashed.ends[3]..log.len()).step_by(9) {
        let torn = [&log[..place], &vec![0; log.len() - place + 10_000]].concat();
        crashed.has_first(4, &torn, &format!("zeros from {place}")).await;
    }
    crashed.has_first(5, &[&log[..], &[0; 10_000]].concat(), "zeros behind").await;
}

#[tokio::test]
async fn pages_missing_in_the_last_batch_lose_that_batch_alone() {
    let crashed = Crashed::new(true).await;
    let log = crashed.log();
    let pages = (crashed.ends[3] / 4096..=log.len() / 4096).map(|page| page * 4096);
    for page in pages {
        let mut torn = log.clone();
        for byte in torn.iter_mut().skip(page.max(crashed.ends[3])).take(4096) {
            *byte = 0;
        }
        crashed.has_first(4, &torn, &format!("without the page at {page}")).await;
    }
}

#[tokio::test]
async fn noise_behind_the_last_batch_is_cut_off() {
    let crashed = Crashed::new(false).await;
    let log = crashed.log();
    for tail in [&noise(1)[..], &noise(100), &noise(100_000), &[1; 5000], &[2; 5000], &[3; 5000], &log[..60]] {
        let what = format!("{} bytes, the first is {}", tail.len(), tail[0]);
        crashed.has_first(5, &[&log, tail].concat(), &what).await;
    }
}

#[tokio::test]
async fn a_batch_that_was_written_half_and_then_again_is_cut_off() {
    let crashed = Crashed::new(false).await;
    let log = crashed.log();
    let (before, last) = log.split_at(crashed.ends[3]);
    for half in [1, 13, 14, 40, last.len() - 1] {
        let torn = [before, &last[..half], last].concat();
        crashed.has_first(4, &torn, &format!("{half} bytes")).await;
    }
    crashed.has_first(4, &[before, &last[..20], &last[..50], last].concat(), "twice half").await;
    crashed.has_first(5, &[before, last, last].concat(), "twice whole").await;
    let (before, behind) = log.split_at(crashed.ends[2]);
    crashed.is_damaged_at(before.len(), &[before, &behind[..40], behind].concat(), "another batch behind it");
}

#[tokio::test]
async fn a_bit_that_turned_in_a_batch_with_others_behind_it_is_told_and_nothing_is_changed() {
    let crashed = Crashed::new(false).await;
    let log = crashed.log();
    for place in 0..crashed.ends[3] {
        let mut damaged = log.clone();
        damaged[place] ^= 1 << (place % 8);
        let batch = crashed.ends.iter().rposition(|end| *end <= place).map_or(0, |before| crashed.ends[before]);
        let what = format!("byte {place}");
        if !NUMBER.contains(&(place - batch)) {
            crashed.is_damaged_at(batch, &damaged, &what);
        } else if let Ok(kv) = open(crashed.with_log(&damaged).0.path()) {
            // No hash covers the number; one still between its neighbours is harmless.
            assert_eq!(kv.levels().entries, 5, "{what}");
        }
    }
}

#[tokio::test]
async fn a_batch_that_is_missing_in_the_middle_is_told() {
    let crashed = Crashed::new(false).await;
    let mut log = crashed.log();
    log[crashed.ends[1]..crashed.ends[2]].fill(0);
    crashed.is_damaged_at(crashed.ends[1], &log, "zeros");
    log[crashed.ends[1]..crashed.ends[2]].copy_from_slice(&noise(crashed.ends[2] - crashed.ends[1]));
    crashed.is_damaged_at(crashed.ends[1], &log, "noise");
}

#[tokio::test]
async fn after_a_clean_end_damage_in_the_last_write_is_told_too() {
    let crashed = Crashed::new(false).await;
    let (last, end) = (crashed.ends[3], crashed.ends[4]);
    assert!(crashed.store.kv.close(std::time::Duration::from_secs(30)));
    let mut log = crashed.log();
    assert!(log.len() > end, "something is written at the end");
    log[end - 20] ^= 1;
    crashed.is_damaged_at(last, &log, "the last write");
}

#[tokio::test]
async fn a_crash_while_the_store_was_made_is_no_damage() {
    for version in [None, Some(&b""[..]), Some(&b"FJL"[..]), Some(&[0, 0, 0, 3][..])] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("lock"), []).expect("written");
        fs::write(folder.path().join("0.jnl"), [0; 1000]).expect("written");
        fs::create_dir(folder.path().join("keyspaces")).expect("a folder");
        if let Some(version) = version {
            fs::write(folder.path().join("version"), version).expect("written");
        }
        let kv = open(folder.path()).expect("it starts over");
        kv.create(b"k", value(b"v"), None).await.expect("created");
        assert!(kv.close(std::time::Duration::from_secs(30)));
        assert!(open(folder.path()).expect("opened").retrieve(b"k").await.is_ok());
    }
}

#[tokio::test]
async fn a_store_whose_marker_is_gone_is_damaged_and_keeps_its_files() {
    let crashed = Crashed::new(false).await;
    let (folder, path) = crashed.with_log(&crashed.log());
    fs::remove_file(folder.path().join("version")).expect("removed");
    let said = open(folder.path()).map(drop).expect_err("damaged").to_string();
    assert!(said.contains("`version` is missing"), "{said}");
    assert_eq!(fs::read(path).expect("the log"), crashed.log());
}

#[tokio::test]
async fn a_damaged_list_of_tables_is_refused_before_anything_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let kv = open(folder.path()).expect("opened");
    kv.create(b"k", value(b"v"), None).await.expect("created");
    assert!(kv.close(std::time::Duration::from_secs(30)));
    drop(kv);
    for store in ["0", "1"] {
        let store = folder.path().join("keyspaces").join(store);
        let current = store.join("current");
        let number = fs::read(&current).expect("a number")[..8].try_into().map(u64::from_le_bytes).expect("8 bytes");
        for file in [current.clone(), store.join(format!("v{number}"))] {
            let whole = fs::read(&file).expect("a list");
            for damage in [&[][..], &whole[..whole.len() / 2], &[&[0; 8], &whole[..]].concat()] {
                fs::write(&file, damage).expect("written");
                let reason = open(folder.path()).map(drop).expect_err("damaged").to_string();
                assert!(reason.contains(&format!("{} is damaged or missing", current.display())), "{reason}");
            }
            fs::write(&file, whole).expect("written");
        }
    }
    fs::remove_file(folder.path().join("keyspaces/0/current")).expect("removed");
    assert!(open(folder.path()).is_err(), "without its list");
    assert!(folder.path().join("keyspaces/1/current").exists(), "nothing was removed");
}
