//! The files of a store are damaged, cut, replaced or lost between two starts: a start that goes on has every acknowledged
//! entry, and one that does not names what is lost.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use bookstore::{
    Bookstore, Settings, Verdict,
    domain::{Entry, EntryKind},
    store::{self, CopyError, Page},
};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{Shop, close, id, key, operator};

const BOOK: i32 = 53477;
const FILES: [&str; 3] = ["bookstore.db", "bookstore.db-wal", "bookstore.db-head"];
const HEAD: &str = "bookstore.db-head";
/// Rounds of seeded damage; as many as `DAMAGE_ROUNDS` says, if it is set.
const ROUNDS: u64 = 40;

/// Names and contents of a store's files.
type Files = Vec<(&'static str, Vec<u8>)>;

fn buy(shop: &Shop, store: &Bookstore, name: &str) {
    let bought = shop.runtime.block_on(store.buy(id(BOOK), 1, Some(key(name)), None)).expect("no fault");
    assert_eq!(bought.verdict, Verdict::Bought);
}

/// The store's files as a killed server leaves them.
fn files(folder: &Path) -> Files {
    FILES.into_iter().filter_map(|name| Some((name, fs::read(folder.join(name)).ok()?))).collect()
}

fn put(folder: &Path, files: &[(&'static str, Vec<u8>)]) {
    for file in fs::read_dir(folder).expect("a folder").flatten() {
        fs::remove_file(file.path()).expect("a file can go");
    }
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).expect("a file");
    }
}

/// A shop with the files of one that sold so many copies, and its log.
fn sold(count: usize) -> (Shop, Files, Vec<Entry>) {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    for number in 0..count {
        buy(&shop, &store, &number.to_string());
    }
    let (files, log) = (files(shop.folder.path()), shop.log(&store));
    close(&store);
    put(shop.folder.path(), &files);
    (shop, files, log)
}

fn refusal(shop: &Shop, accepted: Option<u64>) -> String {
    let settings = Settings { accept_loss: accepted, ..Settings::default() };
    shop.try_open(&settings).expect_err("it is refused").to_string()
}

fn accepting(entries: u64) -> Settings {
    Settings { accept_loss: Some(entries), ..Settings::default() }
}

/// Starts, sells and closes.
fn goes_on(shop: &Shop, settings: &Settings) {
    let store = shop.open(settings);
    buy(shop, &store, &format!("{:?}", std::time::Instant::now()));
    close(&store);
}

fn random(random: &mut Xoshiro256PlusPlus, below: usize) -> usize {
    usize::try_from(random.next_u64() % below as u64).expect("fits")
}

/// Flips a bit, cuts the file, or fills a part with zeros or with other bytes; returns what was done.
fn damage(bytes: &mut Vec<u8>, seed: &mut Xoshiro256PlusPlus) -> String {
    let at = random(seed, bytes.len());
    let end = bytes.len().min(at + 1 + random(seed, 20_000));
    match random(seed, 4) {
        0 => {
            bytes[at] ^= 1 << random(seed, 8);
            format!("a bit of byte {at}")
        }
        1 => {
            bytes.truncate(at);
            format!("cut at {at}")
        }
        2 => {
            bytes[at..end].fill(0);
            format!("zeros from {at} to {end}")
        }
        _ => {
            seed.fill_bytes(&mut bytes[at..end]);
            format!("noise from {at} to {end}")
        }
    }
}

/// A backup's copy of the store, in a folder of its own.
fn copy(shop: &Shop) -> Result<TempDir, CopyError> {
    let folder = tempfile::tempdir_in(shop.folder.path().parent().expect("a parent")).expect("a folder");
    store::copy(&shop.path(), &folder.path().join(FILES[0]), &Settings::default(), &mut |_, _| {})?;
    Ok(folder)
}

#[test]
fn no_damage_to_the_files_loses_an_acknowledged_entry_unnoticed() {
    let rounds = std::env::var("DAMAGE_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let (shop, whole, log) = sold(60);
    assert_eq!(whole.len(), FILES.len(), "a killed server leaves a WAL");
    let (mut noticed, mut harmless) = (0, 0);
    for round in 0..rounds {
        let mut seed = Xoshiro256PlusPlus::seed_from_u64(round);
        let mut files = whole.clone();
        // Mostly the WAL, which has the newest entries.
        let place = usize::from(random(&mut seed, 4) > 0);
        let done = damage(&mut files[place].1, &mut seed);
        put(shop.folder.path(), &files);
        let copied = copy(&shop).is_ok_and(|copy| {
            let copy = Connection::open(copy.path().join(FILES[0])).expect("a copy");
            // A reader gives a file up that SQLite cannot read, and so does the copy of one.
            let rows: u32 = copy.query_row("SELECT count(*) FROM entry", (), |row| row.get(0)).unwrap_or(0);
            assert!(rows == 0 || u64::from(rows) == log.len() as u64, "round {round}: a copy of {rows}, {done}");
            true
        });
        put(shop.folder.path(), &files);
        let Ok(store) = shop.try_open(&Settings::default()) else {
            noticed += 1;
            continue;
        };
        assert!(copied, "round {round}: what starts can be copied, {done}");
        let found = shop.runtime.block_on(store.log(Page::After(0), 1000));
        let lost = found.map_or(0, |found| log.iter().filter(|entry| !found.items.contains(entry)).count());
        assert_eq!(lost, 0, "round {round}: {}, {done}", FILES[place]);
        harmless += 1;
        store.close(std::time::Duration::from_secs(20));
    }
    eprintln!("{rounds} rounds: {noticed} noticed, {harmless} without a loss");
    assert!(noticed > rounds / 4, "the damage was some: {noticed} of {rounds}");
}

#[test]
fn a_wal_that_was_cut_is_named_with_its_entries_and_stays_as_it_is() {
    let (shop, mut files, log) = sold(20);
    let wal = &mut files[1].1;
    let half = wal.len() / 2;
    wal.truncate(half);
    put(shop.folder.path(), &files);
    let said = refusal(&shop, None);
    assert_eq!(fs::read(shop.folder.path().join(FILES[1])).expect("the WAL is there"), files[1].1);
    let lost = said.split("--accept-loss ").nth(1).and_then(|rest| rest.strip_suffix('`')).expect("a number");
    let lost: u64 = lost.parse().expect("a number");
    let (last, first) = (log.len() as u64, log.len() as u64 - lost + 1);
    assert!(said.contains(&format!("has lost entries that were acknowledged, numbers {first} to {last}:")), "{said}");
    assert!(said.contains("quire restore") && said.ends_with(&format!("--accept-loss {lost}`")), "{said}");
    assert_eq!(refusal(&shop, Some(lost + 1)), said);
    assert_eq!(copy(&shop).expect_err("it is not backed up").to_string(), said);

    let store = shop.open(&accepting(lost));
    buy(&shop, &store, "after the loss");
    let kept = shop.log(&store);
    let numbers: Vec<u64> = kept.iter().rev().take(2).map(|entry| entry.number.unsigned_abs()).collect();
    assert_eq!(numbers, [last + 2, last + 1], "no number is given twice");
    let mark = &kept[kept.len() - 2];
    let actor = mark.actor.as_ref().expect("an actor").to_string();
    assert_eq!(
        (mark.kind, actor),
        (EntryKind::Edited, format!("accepted the loss of {lost} entries up to number {last}"))
    );
    close(&store);
    goes_on(&shop, &Settings::default());
    let known_missing = || store::verify(&shop.path(), &mut |_, _| {}).expect("it can be read").known_missing;
    assert_eq!(known_missing(), lost);
    // From a backup, as docs/operate/failures.md has it.
    shop.other_program(&format!("INSERT INTO entry (number, time_ms, kind, book_id) VALUES ({first}, 0, 8, {BOOK})"));
    goes_on(&shop, &Settings::default());
    assert_eq!(known_missing(), lost - 1);
}

#[test]
fn a_row_that_another_program_deleted_or_changed_is_noticed() {
    let (shop, files, log) = sold(10);
    for (sql, part) in [
        ("DELETE FROM entry WHERE number = 7", "has lost an entry that was acknowledged, number 7:"),
        (
            "DELETE FROM entry WHERE number IN (6, 9, 10)",
            "has lost entries that were acknowledged, number 6, numbers 9 to 10:",
        ),
        ("UPDATE entry SET quantity = 2 WHERE number = 7", "at least one was changed"),
    ] {
        put(shop.folder.path(), &files);
        shop.other_program(sql);
        let said = refusal(&shop, None);
        assert!(said.contains(part), "{sql}: {said}");
    }
    assert!(refusal(&shop, None).contains(&format!("numbers 1 to {}", log.len())));
    goes_on(&shop, &accepting(log.len() as u64));
    goes_on(&shop, &Settings::default());
}

#[test]
fn entries_that_others_wrote_while_no_server_ran_are_no_loss() {
    let (shop, _, _) = sold(3);
    shop.other_program("UPDATE book SET stock = stock + 5; UPDATE book SET price_cents = price_cents + 1");
    goes_on(&shop, &Settings::default());
    shop.import("7,Later,others,3,1.00\n");
    goes_on(&shop, &Settings::default());
    let store = shop.open(&Settings::default());
    shop.other_program("INSERT INTO entry (number, time_ms, kind, book_id) VALUES (500, 0, 8, 7)");
    buy(&shop, &store, "behind a gap");
    shop.other_program("UPDATE book SET stock = stock + 5");
    close(&store);
    goes_on(&shop, &Settings::default());
    shop.other_program("INSERT INTO entry (number, time_ms, kind, book_id) VALUES (400, 0, 8, 7)");
    goes_on(&shop, &Settings::default());
}

#[test]
fn two_servers_on_one_file_leave_a_head_that_fits() {
    let shop = Shop::new();
    let stores = [shop.open(&Settings::default()), shop.open(&Settings::default())];
    for round in 0..20 {
        buy(&shop, &stores[round % 2], &round.to_string());
        if round % 5 == 0 {
            shop.other_program("UPDATE book SET stock = stock + 1");
        }
        if round % 7 == 0 {
            buy(&shop, &stores[round % 2], &format!("{round} again"));
        }
    }
    let killed = files(shop.folder.path());
    stores.iter().for_each(close);
    put(shop.folder.path(), &killed);
    goes_on(&shop, &Settings::default());
}

#[test]
fn a_repeated_answer_waits_until_the_other_servers_entry_is_in_the_head() {
    let shop = Shop::new();
    let stores = [shop.open(&Settings::default()), shop.open(&Settings::default())];
    buy(&shop, &stores[1], "before");
    let (head, place) = (fs::read(shop.folder.path().join(HEAD)).expect("a head"), shop.folder.path().join(HEAD));
    buy(&shop, &stores[0], "retried");
    // As if the write of the head had failed there.
    fs::write(place, head).expect("the head can be written");
    buy(&shop, &stores[1], "retried");
    let killed = files(shop.folder.path());
    let last = shop.log(&stores[1]).len();
    for store in &stores {
        store.close(std::time::Duration::from_secs(20));
    }
    put(shop.folder.path(), &killed);
    shop.other_program(&format!("DELETE FROM entry WHERE number = {last}"));
    assert!(refusal(&shop, None).contains(&format!("number {last}:")), "what was answered again is in the head");
}

#[test]
fn a_head_that_is_missing_damaged_or_of_another_file_is_not_made_anew_without_consent() {
    let (shop, files, _) = sold(4);
    let (other, _, _) = sold(5);
    let place = shop.folder.path().join(HEAD);
    let cases: [(&str, &dyn Fn()); 3] = [
        ("is without its head", &|| fs::remove_file(&place).expect("it can go")),
        ("is damaged", &|| fs::write(&place, [0; 9000]).expect("it can be written")),
        ("is the head of another file", &|| _ = fs::copy(other.path().with_file_name(HEAD), &place).expect("a copy")),
    ];
    for (part, harm) in cases {
        put(shop.folder.path(), &files);
        harm();
        let said = refusal(&shop, None);
        assert!(said.contains(part) && said.ends_with("--accept-loss 0`"), "{said}");
        goes_on(&shop, &accepting(0));
        goes_on(&shop, &Settings::default());
    }
}

#[test]
fn a_torn_slot_or_a_head_behind_the_log_is_no_loss() {
    let (shop, files, _) = sold(4);
    let behind = files[2].clone();
    for place in 0..3 {
        let mut torn = files.clone();
        torn[2].1[place * 4096 + 100] ^= 1;
        put(shop.folder.path(), &torn);
        goes_on(&shop, &Settings::default());
    }
    let mut newer = self::files(shop.folder.path());
    newer.retain(|(name, _)| *name != HEAD);
    newer.push(behind);
    put(shop.folder.path(), &newer);
    goes_on(&shop, &Settings::default());
}

#[test]
fn a_file_that_is_gone_or_of_an_older_day_is_not_replaced_by_the_sample() {
    let (shop, files, log) = sold(4);
    put(shop.folder.path(), &files[2..]);
    let said = refusal(&shop, None);
    assert!(said.contains(&format!("had {} entries", log.len())) && !shop.path().exists(), "{said}");
    goes_on(&shop, &accepting(log.len() as u64));
    goes_on(&shop, &Settings::default());
    // The database of before the last purchases, under the head of now.
    put(shop.folder.path(), &[files[0].clone(), files[2].clone()]);
    assert!(refusal(&shop, None).contains("has lost "), "an older copy is noticed");
}

#[test]
fn a_copy_is_a_log_of_its_own() {
    let (shop, _, log) = sold(4);
    let (copy, metrics) = (copy(&shop).expect("a copy"), bookstore::metrics::Metrics::default());
    let store = Bookstore::open(&copy.path().join(FILES[0]), Settings::default(), metrics).expect("a store");
    assert_eq!(shop.log(&store), log);
    close(&store);
    assert!(copy.path().join(HEAD).exists(), "it got a head");
}

#[test]
fn a_store_that_sells_is_copied_without_a_false_alarm() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                buy(&shop, &store, &number.to_string());
                if is_over.load(Relaxed) {
                    break;
                }
            }
        });
        let copies: Result<Vec<_>, _> = (0..20).map(|_| copy(&shop)).collect();
        is_over.store(true, Relaxed);
        copies.expect("copies");
    });
    close(&store);
}

#[test]
fn all_files_of_a_stopped_store_copied_together_are_a_store() {
    let (shop, files, log) = sold(4);
    goes_on(&shop, &Settings::default());
    let (stopped, metrics) = (self::files(shop.folder.path()), bookstore::metrics::Metrics::default());
    let other = tempfile::tempdir_in(shop.folder.path()).expect("a folder");
    put(other.path(), &stopped);
    let store = Bookstore::open(&other.path().join(FILES[0]), Settings::default(), metrics).expect("a store");
    assert_eq!(shop.log(&store).len(), log.len() + 1);
    close(&store);
    // Over the files of a later day, all of them.
    drop(other);
    put(shop.folder.path(), &files);
    goes_on(&shop, &Settings::default());
}

#[test]
fn a_link_to_a_file_has_the_head_of_the_file() {
    let (shop, _, log) = sold(4);
    let other = tempfile::tempdir_in(shop.folder.path().parent().expect("a parent")).expect("a folder");
    let link = other.path().join("linked.db");
    symlink(shop.path(), &link).expect("a link");
    let store = Bookstore::open(&link, Settings::default(), bookstore::metrics::Metrics::default()).expect("a store");
    buy(&shop, &store, "by the link");
    close(&store);
    let store = shop.open(&Settings::default());
    assert_eq!(shop.log(&store).len(), log.len() + 1);
    close(&store);
}

#[test]
fn a_process_that_ends_while_it_accepts_a_loss_has_accepted_it() {
    let (shop, files, log) = sold(4);
    shop.other_program("DELETE FROM entry WHERE number = 7");
    goes_on(&shop, &accepting(1));
    shop.other_program("DELETE FROM meta WHERE name = 'log_id'");
    fs::write(shop.folder.path().join(HEAD), &files[2].1).expect("the head of before");
    let store = shop.open(&Settings::default());
    assert_eq!(shop.log(&store).len(), log.len() + 1, "one less, the mark and a purchase");
    close(&store);
}

#[test]
fn a_store_without_a_head_gets_one() {
    let (shop, _, log) = sold(4);
    shop.other_program("DELETE FROM meta WHERE name LIKE 'log_%'");
    fs::remove_file(shop.folder.path().join(HEAD)).expect("it can go");
    let store = shop.open(&Settings::default());
    assert_eq!(shop.log(&store), log);
    close(&store);
    shop.other_program("DELETE FROM entry WHERE number = 6");
    assert!(refusal(&shop, None).contains("number 6"));
}

#[test]
fn numbers_that_were_lost_before_the_log_had_a_head_are_no_loss() {
    let (shop, _, log) = sold(4);
    let last = log.len();
    shop.other_program(&format!(
        "DELETE FROM meta WHERE name LIKE 'log_%';
         DELETE FROM entry WHERE number >= {last} - 1;
         INSERT OR REPLACE INTO meta VALUES ('keys_indexed_up_to', {last})"
    ));
    fs::remove_file(shop.folder.path().join(HEAD)).expect("it can go");
    for _ in 0..3 {
        let store = shop.open(&Settings::default());
        assert_eq!(shop.log(&store).len(), last - 2, "the lost entries stay lost");
        close(&store);
    }
    goes_on(&shop, &Settings::default());
    let store = shop.open(&Settings::default());
    let number = shop.log(&store).last().map(|entry| entry.number.unsigned_abs());
    assert_eq!(number, Some(last as u64 + 1), "no number is given twice");
    close(&store);
}

#[test]
fn a_head_that_finds_no_room_is_named() {
    let shop = Shop::new();
    symlink("/dev/full", shop.folder.path().join(HEAD)).expect("a link");
    let said = refusal(&shop, None);
    assert!(said.contains(HEAD) && said.contains("No space left on device"), "{said}");
}

#[test]
fn operators_changes_are_covered_as_purchases_are() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    shop.runtime.block_on(store.restock(2000, operator())).expect("restocked");
    let killed = files(shop.folder.path());
    close(&store);
    put(shop.folder.path(), &killed);
    goes_on(&shop, &Settings::default());
    shop.other_program("UPDATE entry SET actor = 'someone else' WHERE actor IS NOT NULL");
    assert!(refusal(&shop, None).contains("at least one was changed"));
}
