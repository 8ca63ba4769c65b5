//! A bookstore's work on the disk, and what must be true of its files afterwards.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use bookstore::{
    Bookstore, Fault, IdempotencyKey, Settings, Verdict,
    domain::{Actor, BookId, Entry, EntryKind, HoldState},
    exchange,
    metrics::Metrics,
    store::{self, Page},
};
use futures_util::future::join_all;
use hosting::Client;
use kit::ledger::{Entry as Line, Kind, Ledger};
use rand_core::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::runtime::Runtime;

use crate::{
    judge::{Finding, Work, say},
    random::Random as _,
};

const FILE: &str = "bookstore.db";
const BOOKS: i32 = 6;
/// Books of a shop whose restock fills the WAL up to its next checkpoint within a few batches.
const MANY_BOOKS: i32 = 3000;
const TITLE: usize = 600;
/// Begin of the clock of reservations, in milliseconds.
const EPOCH: i64 = 1_000_000_000;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// So few keys in memory that most are in the index, and small transactions.
fn settings(clock: &Arc<AtomicI64>) -> Settings {
    let clock = Arc::clone(clock);
    Settings {
        batch_max: 16,
        keys_in_memory: 4,
        page_cache_bytes: 1 << 20,
        read_pool: 2,
        busy_timeout: Duration::from_secs(10),
        clock: Some(Arc::new(move || clock.load(Relaxed))),
        ..Settings::default()
    }
}

fn id(number: i32) -> BookId {
    BookId::new(number).expect("a valid id")
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::from_wire(text.as_bytes()).expect("a valid key").expect("not empty")
}

/// Makes a store in a folder.
pub(crate) fn found(folder: &Path, is_large: bool) -> anyhow::Result<()> {
    let (books, title) = if is_large { (MANY_BOOKS, TITLE) } else { (BOOKS, 10) };
    let title = "x".repeat(title);
    let rows: Vec<String> = (1..=books).map(|id| format!("{id},{title},topic {},40,1.00\n", id % 5)).collect();
    let csv = format!("id,title,topic,stock,price\n{}", rows.concat());
    let options = exchange::Options { progress: &mut |_| {}, skip_bad: None, sample: true };
    exchange::import(&folder.join(FILE), csv.as_bytes(), &Settings::default(), options)?;
    let store = Bookstore::open(&folder.join(FILE), Settings::default(), Metrics::default())?;
    let done = runtime().block_on(store.buy(id(1), 1, Some(key("first")), None))?;
    ensure!(done.verdict == Verdict::Bought && store.close(Duration::from_secs(20)), "a shop that sells");
    Ok(())
}

/// An answer of the store, which left an entry in the log.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    number: i64,
    kind: String,
    book: i32,
    quantity: Option<u32>,
    key: Option<String>,
}

impl Acknowledged {
    fn line(&self) -> String {
        let Self { number, kind, book, quantity, key } = self;
        let quantity = quantity.map_or_else(|| "-".to_owned(), |quantity| quantity.to_string());
        format!("done {number} {kind} {book} {quantity} {}", key.as_deref().unwrap_or("-"))
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("done ")?.split(' ');
        let (number, kind, book) = (words.next()?.parse().ok()?, words.next()?.to_owned(), words.next()?.parse().ok()?);
        let (quantity, key) = (words.next()?.parse().ok(), words.next()?);
        Some(Self { number, kind, book, quantity, key: (key != "-").then(|| key.to_owned()) })
    }

    fn is(&self, entry: &Entry) -> bool {
        entry.number == self.number
            && entry.kind.name() == self.kind
            && entry.book.get() == self.book
            && (self.quantity.is_none() || entry.quantity == self.quantity)
            && entry.key.as_ref().map(IdempotencyKey::as_bytes) == self.key.as_ref().map(String::as_bytes)
    }
}

/// A request that may be repeated.
#[derive(Clone, Debug)]
enum Request {
    Buy(i32, i32, Option<String>),
    Hold(i32, i32, String),
    End(String, bool),
    Restock(i32, i64),
    RestockAll(i64),
    Price(i32, i64),
}

impl Request {
    /// The key under which it leaves a first entry in the log.
    fn key(&self) -> Option<&str> {
        match self {
            Self::Buy(_, _, key) => key.as_deref(),
            Self::Hold(_, _, key) => Some(key),
            _ => None,
        }
    }
}

/// A process that uses the store.
struct Shopper {
    tag: String,
    random: Xoshiro256PlusPlus,
    sent: Vec<Request>,
    holds: Vec<String>,
    books: i32,
}

impl Shopper {
    fn next(&mut self) -> Request {
        let book = 1 + self.random.below(6).cast_signed();
        let copies = 1 + self.random.below(3).cast_signed();
        let name = format!("{}.{}", self.tag, self.sent.len());
        let request = match self.random.below(20) {
            0..8 => Request::Buy(book, copies, Some(name)),
            8..10 => Request::Buy(book, copies, None),
            10..13 => {
                self.holds.push(name.clone());
                Request::Hold(book, copies, name)
            }
            13..16 => match self.random.pick(&self.holds).cloned() {
                Some(name) => Request::End(name, self.random.one_in(2)),
                None => Request::Buy(book, copies, Some(name)),
            },
            16 if self.books == MANY_BOOKS => Request::RestockAll(41 + i64::try_from(self.sent.len()).expect("few")),
            16 | 17 => Request::Restock(book, 30 + i64::from(self.random.below(30))),
            18 => Request::Price(book, 1 + i64::from(self.random.below(5000))),
            _ => match self.random.pick(&self.sent).cloned() {
                Some(again) => again,
                None => Request::Buy(book, copies, Some(name)),
            },
        };
        self.sent.push(request.clone());
        request
    }
}

/// Sends a request; returns what the store acknowledged.
async fn send(store: &Bookstore, request: Request) -> Result<Option<Acknowledged>, Fault> {
    let done = |number: Option<i64>, kind: EntryKind, book: i32, quantity: Option<i32>, key: Option<String>| {
        let quantity = quantity.map(i32::unsigned_abs);
        number.map(|number| Acknowledged { number, kind: kind.name().to_owned(), book, quantity, key })
    };
    Ok(match request {
        Request::Buy(book, copies, name) => {
            let bought = store.buy(id(book), copies, name.as_deref().map(key), None).await?;
            let kind = if bought.verdict == Verdict::Bought { EntryKind::Purchase } else { EntryKind::Refused };
            done(bought.number, kind, book, Some(copies), name)
        }
        Request::Hold(book, copies, name) => {
            let held = store.hold(id(book), copies, key(&name), Some(60), &Client::Unknown, None).await?;
            let is_new = held.state == HoldState::Held;
            done(held.number.filter(|_| is_new), EntryKind::Reserved, book, Some(copies), Some(name))
        }
        Request::End(name, confirms) => {
            let ended = store.end_hold(key(&name), confirms, None).await?;
            let kind = match ended.state {
                HoldState::Bought => EntryKind::Purchase,
                HoldState::Released | HoldState::Expired => EntryKind::Released,
                _ => return Ok(None),
            };
            let book = ended.held.map_or(0, |(book, ..)| book.get());
            done(ended.number, kind, book, None, Some(name))
        }
        Request::Restock(book, amount) => {
            let raised = store.restock_book(id(book), amount, Actor::named("campaign")).await?;
            done(raised.and_then(|raised| raised.number), EntryKind::Restock, book, None, None)
        }
        Request::RestockAll(amount) => {
            store.restock(amount, Actor::named("campaign")).await?;
            None
        }
        Request::Price(book, cents) => {
            let set = store.update_price(id(book), cents, Actor::named("campaign")).await?;
            done(set.map(|set| set.number), EntryKind::Price, book, None, None)
        }
    })
}

/// Uses the store in `work`'s folder, and prints what it acknowledges.
pub(crate) fn work(work: &Work) {
    let clock = Arc::new(AtomicI64::new(EPOCH));
    let store = match Bookstore::open(&work.folder.join(FILE), settings(&clock), Metrics::default()) {
        Ok(store) => store,
        Err(reason) => return say(&format!("refused {reason}")),
    };
    say("open");
    let (runtime, mut random) = (runtime(), Xoshiro256PlusPlus::seed_from_u64(work.seed));
    let books = i32::try_from(store.books()).expect("few books");
    let own = Xoshiro256PlusPlus::seed_from_u64(!work.seed);
    let mut shopper = Shopper { tag: work.tag.clone(), random: own, sent: Vec::new(), holds: Vec::new(), books };
    for _ in 0..work.steps {
        let batch: Vec<Request> = (0..=random.below(7)).map(|_| shopper.next()).collect();
        // Reservations end by time, too, and the clock jumps, also back.
        clock.fetch_add(random.any([1000, 1000, 30_000, 90_000, -50_000]), Relaxed);
        runtime.block_on(join_all(batch.into_iter().map(async |request| match send(&store, request.clone()).await {
            Ok(Some(done)) => say(&done.line()),
            Ok(None) => {}
            Err(fault) => {
                let outcome = if fault == Fault::OutcomeUnknown { "unknown" } else { "not" };
                say(&format!("{outcome} {} {fault}", request.key().unwrap_or("-")));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })));
    }
    if work.closes {
        store.close(Duration::from_secs(20));
    }
}

/// The whole log.
fn log(runtime: &Runtime, store: &Bookstore) -> anyhow::Result<Vec<Entry>> {
    let (mut entries, mut after) = (Vec::new(), 0);
    loop {
        let page = runtime.block_on(store.log(Page::After(after), 0))?;
        entries.extend(page.items);
        match page.next {
            Some(last) => after = last,
            None => return Ok(entries),
        }
    }
}

/// Replays the log by the contract's rules; returns it with the copies held of each book.
fn replay(entries: &[Entry]) -> anyhow::Result<(Ledger, HashMap<i32, u32>)> {
    let (mut ledger, mut open) = (Ledger::default(), HashMap::new());
    for (entry, number) in entries.iter().zip(1..) {
        ensure!(entry.number == number, "number {number} of the log is missing");
        let place = EntryKind::ALL.iter().position(|kind| *kind == entry.kind).context("a kind")?;
        let kind = i32::try_from(place + 1)?;
        let line = Line {
            kind: Kind::of(kind).context("a kind of the contract")?,
            book: entry.book.get().into(),
            quantity: entry.quantity.map(i64::from),
            before: entry.before,
            after: entry.after,
            key: entry.key.map(|key| key.as_bytes().to_vec()).unwrap_or_default(),
        };
        let ends = kind == Kind::Released as i32 || kind == Kind::Purchase as i32 && entry.before == entry.after;
        if entry.kind == EntryKind::Reserved {
            open.insert(line.key.clone(), (entry.book.get(), entry.quantity.unwrap_or_default()));
        } else if ends {
            open.remove(&line.key);
        }
        ledger.append(line).map_err(anyhow::Error::msg)?;
    }
    let mut held = HashMap::new();
    for (book, copies) in open.into_values() {
        *held.entry(book).or_default() += copies;
    }
    Ok((ledger, held))
}

/// The keys of which every answer said that nothing was done.
fn refused(said: &[String]) -> HashSet<&[u8]> {
    let keys = |word| {
        let lines = said.iter().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '));
        lines.filter_map(|rest| rest.split(' ').next()).map(str::as_bytes)
    };
    let unknown: HashSet<&[u8]> = keys("unknown").collect();
    keys("not").filter(|key| !unknown.contains(key)).collect()
}

/// Compares the store with what was acknowledged and refused.
fn compare(store: &Bookstore, done: &[Acknowledged], refused: &HashSet<&[u8]>) -> anyhow::Result<()> {
    let runtime = runtime();
    let entries = log(&runtime, store)?;
    for entry in &entries {
        let Some(key) = entry.key.as_ref().map(IdempotencyKey::as_bytes).filter(|key| refused.contains(key)) else {
            continue;
        };
        let is_answered = done.iter().any(|done| done.key.as_ref().is_some_and(|done| done.as_bytes() == key));
        ensure!(is_answered, "{entry:?} is in the log, and its caller was told that nothing was done");
    }
    for done in done {
        let entry = usize::try_from(done.number - 1).ok().and_then(|place| entries.get(place));
        ensure!(entry.is_some_and(|entry| done.is(entry)), "{done:?} was acknowledged, and the log has {entry:?}");
    }
    let (ledger, held) = replay(&entries)?;
    for book in 1..=BOOKS {
        let known = runtime.block_on(store.lookup(id(book)))?.context("the book is there")?;
        let copies = (i64::from(known.stock()), known.held());
        let logged = (ledger.stock(book.into()).unwrap_or(-1), held.get(&book).copied().unwrap_or(0));
        ensure!(copies == logged, "book {book} has {copies:?} copies free and held, by the log {logged:?}");
    }
    let bought = done.iter().rev().filter(|done| done.kind == EntryKind::Purchase.name());
    for done in bought.filter(|done| done.quantity.is_some()).take(5) {
        let (Some(name), Some(copies)) = (&done.key, done.quantity) else { continue };
        let again = runtime.block_on(store.buy(id(done.book), i32::try_from(copies)?, Some(key(name)), None))?;
        if !(again.replayed && again.number == Some(done.number)) {
            bail!("{done:?} was answered anew: {again:?}");
        }
    }
    Ok(())
}

/// Judges the files by the lines that processes printed.
pub(crate) fn audit(folder: &Path, said: &[String]) -> Finding {
    let done: Vec<Acknowledged> = said.iter().filter_map(|line| Acknowledged::parse(line)).collect();
    let path = folder.join(FILE);
    // Before the end of every reservation.
    let clock = Arc::new(AtomicI64::new(0));
    let store = match Bookstore::open(&path, settings(&clock), Metrics::default()) {
        Ok(store) => store,
        Err(reason) => return Finding::Noticed(format!("refused: {reason}")),
    };
    let compared = compare(&store, &done, &refused(said));
    store.close(Duration::from_secs(20));
    let verified = match store::verify(&path, &mut |_, _| {}) {
        Err(reason) => return Finding::Noticed(reason.to_string()),
        Ok(found) => found.problems.first().map(|problem| format!("{problem:?}")),
    };
    match (compared, verified) {
        (_, Some(problem)) => Finding::Noticed(format!("verified: {problem}")),
        (Err(reason), None) if reason.is::<Fault>() => Finding::Noticed(format!("a call failed: {reason}")),
        (Err(reason), None) => Finding::Wrong(format!("{reason:#}")),
        (Ok(()), None) => Finding::Whole(done.len()),
    }
}
