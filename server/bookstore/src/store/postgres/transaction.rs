//! The ledger's transactions, one at a time on a separate connection, in two round trips: the first locks books and
//! reads facts, and after the ledger's decision the last writes and commits. Another comes between them if enough work
//! arrived during waits for locks.
//!
//! Under READ COMMITTED each statement sees all commits before its start, so a book's row is read after its lock was
//! acquired, and keys are looked up after that. Two servers cannot deadlock: books' rows are waited for in the order of
//! ids, others are locked only if they are free, and then keys are inserted in byte order. The guards in the last trip
//! repeat the reads of the first; a failing guard fails the transaction, and COMMIT rolls it back.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use futures_util::future::{join, join3, join4};
use tokio::runtime::Runtime;
use tokio_postgres::{Error, Row, Statement, types::ToSql};

use super::{
    super::{
        facts::{Facts, Wanted},
        interface::{Broken, Changes, LedgerConnection, LedgerTransaction, TransactionError, TransactionId, code},
    },
    errors::PostgresError,
    link::{Link, connect, timed},
    rows::{APPEND, APPEND_WHOLE, BOOK_COLUMNS, Columns, ENTRY_COLUMNS, book, book_facts, book_id, entry},
    schema::NUMBERS_A_VALUE,
    target::Target,
    visible::Visible,
};
use crate::{
    domain::{Actor, BookId, Entry, EntryKind, Holder, IdempotencyKey, NewBook},
    fault::Fault,
    metrics::Metrics,
    settings::Settings,
};

/// Attempts of a transaction that loses races.
const TRIES: usize = 8;

/// Time limit for replacing an ended connection without the ledger noticing.
const RENEW: Duration = Duration::from_secs(1);

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// Counts the batch. As the first statement it also gives the transaction its id, which the log's followers rely on:
/// numbers are drawn later.
const COUNT: &str = "UPDATE ledger_session SET batch = $2::bigint, since = now() \
    WHERE id = $1 AND batch = $2::bigint - 1 AND NOT ended";

/// Removes sessions without a batch for a day. A server settles a COMMIT within seconds, so it needs no such row; a
/// connection that old and still open is replaced at its next batch. A locked row has a batch under way.
const REMOVE_OLD: &str = "DELETE FROM ledger_session WHERE id IN \
    (SELECT id FROM ledger_session WHERE since < now() - interval '1 day' FOR UPDATE SKIP LOCKED)";

/// Time between two looks for reservations whose time is over.
const LOOK: Duration = Duration::from_secs(1);

/// Time between two counts of the open reservations, and at least so many times the duration of the last, for which
/// purchases wait.
const COUNT_HOLDS_EVERY: Duration = Duration::from_secs(1);
const COUNT_HOLDS_SHARE: u32 = 20;

/// Most reservations that one transaction ends because their time is over.
const OVERDUE_MAX: usize = 1024;

/// Locks and reads these books.
const LOCK: &str = "SELECT id, stock, price_cents, listed, held FROM book WHERE id = ANY($1::integer[]) \
    ORDER BY id FOR NO KEY UPDATE";

/// Locks only the books that no one holds: to wait for others while holding some could be a deadlock, and books locked
/// for long are left out.
const SKIP: &str = " SKIP LOCKED";

/// The clock of reservations is the primary's, in milliseconds since the Unix epoch, unless a test passes its own.
fn clock(parameter: &str) -> String {
    format!("(SELECT coalesce({parameter}::bigint, (extract(epoch FROM statement_timestamp()) * 1000)::bigint))")
}

/// As [`LOCK`], and also the books of the reservations with these keys.
fn lock_ending() -> String {
    let others = format!(
        "ANY($1::integer[] \
         || ARRAY(SELECT book_id FROM entry WHERE idempotency_key = ANY($2::bytea[]) AND kind = {}))",
        code(EntryKind::Reserved),
    );
    LOCK.replace("ANY($1::integer[])", &others)
}

/// The places of reservations whose time is over, the longest over first.
fn due(columns: &str, now: &str) -> String {
    format!("SELECT {columns} FROM hold WHERE until_ms <= {} ORDER BY until_ms LIMIT {OVERDUE_MAX}", clock(now))
}

/// Locks and reads the books of [`due`], without those that are locked: no job waits for them.
fn lock_due() -> String {
    LOCK.replace("$1::integer[]", &format!("ARRAY({})", due("book_id", "$1"))) + SKIP
}

/// The entries that began the reservations whose time is over, their holders, and whether their books exist. LIMIT
/// makes each entry a separate look-up: as a join, the plan may read the whole log.
fn overdue() -> String {
    format!(
        "SELECT begun.*, due.holder, EXISTS (SELECT FROM book WHERE id = due.book_id) FROM ({}) due, \
         LATERAL (SELECT {ENTRY_COLUMNS} FROM entry WHERE entry.number = due.number AND entry.book_id = due.book_id LIMIT 1) begun",
        due("book_id, number, holder", "$1")
    )
}

/// The entries with these keys. For those that began a reservation also its holder, if it is open, and whether its book
/// exists.
fn find_keys() -> String {
    let reserved = code(EntryKind::Reserved);
    format!(
        "SELECT {ENTRY_COLUMNS}, CASE WHEN kind = {reserved} THEN \
         (SELECT holder FROM hold WHERE hold.book_id = entry.book_id AND hold.number = entry.number) END, \
         CASE WHEN kind = {reserved} THEN EXISTS (SELECT FROM book WHERE id = entry.book_id) END \
         FROM entry WHERE idempotency_key = ANY($1::bytea[])"
    )
}

/// Distinguishes books that were left out from those that do not exist.
const THERE: &str = "SELECT id FROM book WHERE id = ANY($1::integer[])";

const LOCK_BELOW: &str = "SELECT id, stock, price_cents, listed, held FROM book WHERE id > $1 AND stock < $2 AND listed \
    ORDER BY id LIMIT $3 FOR NO KEY UPDATE";

const HIGHEST: &str = "SELECT greatest((SELECT max(id) FROM book), (SELECT max(book_id) FROM hold))";

/// Copies held of these books, which need not exist.
const HELD: &str =
    "SELECT book_id, sum(quantity)::bigint FROM hold WHERE book_id = ANY($1::integer[]) GROUP BY book_id";

/// Draws numbers for that many entries, and one for each reservation whose time is over if `$2`.
fn draw() -> String {
    let (now, more) = (clock("$3"), NUMBERS_A_VALUE - 1);
    format!(
        "SELECT array_agg(nextval('entry_number')), {now} FROM generate_series(1, ($1::bigint + {more} + CASE WHEN $2::boolean \
         THEN (SELECT count(*) FROM (SELECT FROM hold WHERE until_ms <= {now} LIMIT {OVERDUE_MAX}) due) ELSE 0 END) \
         / {NUMBERS_A_VALUE})"
    )
}

const COUNT_HOLDS: &str = "SELECT holder, count(*) FROM hold GROUP BY holder";

const HOLD: &str = "INSERT INTO hold (book_id, number, quantity, until_ms, holder) \
    SELECT * FROM unnest($1::integer[], $2::bigint[], $3::integer[], $4::bigint[], $5::bigint[])";

/// Removes all of these open reservations, or fails by a division by zero if one has ended.
const UNHOLD: &str = "WITH gone AS (DELETE FROM hold USING unnest($1::integer[], $2::bigint[]) AS ended(book, entry) \
    WHERE book_id = ended.book AND number = ended.entry RETURNING 1) \
    SELECT 1 / (count(*) = cardinality($1))::integer FROM gone";

/// Fails by a division by zero if one of these books exists: after [`UNHOLD`] of a removed book, whose `held` would
/// stay too high if it was just added again.
const ABSENT: &str = "SELECT 1 / (NOT EXISTS (SELECT FROM book WHERE id = ANY($1::integer[])))::integer";

/// As [`CHANGE`], with the held copies.
const CHANGE_HELD: &str = "WITH changed AS (UPDATE book SET stock = c.stock, price_cents = c.price, held = c.held \
    FROM (SELECT unnest($1::integer[]) AS id, unnest($2::integer[]) AS stock_before, unnest($3::integer[]) AS stock, \
        unnest($4::bigint[]) AS price_before, unnest($5::bigint[]) AS price, \
        unnest($6::integer[]) AS held_before, unnest($7::integer[]) AS held) c \
    WHERE book.id = c.id AND book.stock = c.stock_before AND book.price_cents = c.price_before \
        AND book.held = c.held_before RETURNING 1) \
    SELECT 1 / (count(*) = cardinality($1))::integer FROM changed";

/// Changes all books, or fails by a division by zero.
const CHANGE: &str = "WITH changed AS (UPDATE book SET stock = c.stock, price_cents = c.price \
    FROM (SELECT unnest($1::integer[]) AS id, unnest($2::integer[]) AS stock_before, unnest($3::integer[]) AS stock, \
        unnest($4::bigint[]) AS price_before, unnest($5::bigint[]) AS price) c \
    WHERE book.id = c.id AND book.stock = c.stock_before AND book.price_cents = c.price_before RETURNING 1) \
    SELECT 1 / (count(*) = cardinality($1))::integer FROM changed";

/// Adds all books, or fails by a division by zero if another transaction took an id.
const ADD: &str = "WITH added AS (INSERT INTO book (id, title, topic, stock, price_cents, listed) \
    SELECT * FROM unnest($1::integer[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::boolean[]) \
    ON CONFLICT (id) DO NOTHING RETURNING 1) \
    SELECT 1 / (count(*) = cardinality($1))::integer FROM added";

/// Changes all of these books, which are locked, or fails by a division by zero.
pub(super) const REPLACE: &str = "WITH changed AS (UPDATE book SET title = c.title, topic = c.topic, stock = c.stock, \
        price_cents = c.price, listed = c.listed \
    FROM unnest($1::integer[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::boolean[]) \
        AS c(id, title, topic, stock, price, listed) \
    WHERE book.id = c.id RETURNING 1) \
    SELECT 1 / (count(*) = cardinality($1))::integer FROM changed";

/// Whole books, column by column, for [`ADD`] and [`REPLACE`].
#[derive(Default)]
pub(super) struct Wholes<'b> {
    ids: Vec<i32>,
    titles: Vec<&'b str>,
    topics: Vec<&'b str>,
    stocks: Vec<i32>,
    prices: Vec<i64>,
    listed: Vec<bool>,
}

impl<'b> Wholes<'b> {
    pub(super) fn of(books: impl Iterator<Item = &'b NewBook>) -> Self {
        let mut all = Self::default();
        for book in books {
            all.ids.push(book.id.get());
            all.titles.push(&book.title);
            all.topics.push(&book.topic);
            all.stocks.push(book.stock.cast_signed());
            all.prices.push(book.price.get());
            all.listed.push(book.listed);
        }
        all
    }

    /// Carries out a statement with these books, if there are any.
    pub(super) async fn write(&self, link: &Link, statement: &Statement) -> Result<(), Error> {
        let Self { ids, titles, topics, stocks, prices, listed } = self;
        if !ids.is_empty() {
            link.client.query_one(statement, &[ids, titles, topics, stocks, prices, listed]).await?;
        }
        Ok(())
    }
}

/// The statements of a session, prepared once.
struct Statements {
    count: Statement,
    lock: Statement,
    lock_free: Statement,
    lock_ending: Statement,
    lock_ending_free: Statement,
    lock_due: Statement,
    there: Statement,
    lock_below: Statement,
    find_keys: Statement,
    overdue: Statement,
    held: Statement,
    draw: Statement,
    change: Statement,
    change_held: Statement,
    hold: Statement,
    unhold: Statement,
    absent: Statement,
    append: Statement,
    lock_whole: Statement,
    highest: Statement,
    add: Statement,
    replace: Statement,
    append_whole: Statement,
}

/// The ledger's connection, with the runtime that drives it.
pub(super) struct PostgresConnection<'a> {
    session: Session<'a>,
    runtime: Runtime,
}

/// An open session of the database.
struct Session<'a> {
    target: &'a Target,
    link: Link,
    statements: Statements,
    settings: &'a Settings,
    metrics: &'a Metrics,
    visible: &'a Visible,
    /// Its row in `ledger_session`, and the last committed batch.
    id: i64,
    batch: i64,
    /// Time of the last look for reservations whose time is over.
    looked: Instant,
    open: Counts,
}

/// Open reservations: as last counted, and by this server's commits since then.
#[derive(Default)]
struct Counts {
    counted: Option<Instant>,
    /// Duration of that count.
    took: Duration,
    total: usize,
    by_holder: HashMap<Holder, usize>,
}

impl Counts {
    fn begin(&mut self, holder: Holder) {
        self.total += 1;
        *self.by_holder.entry(holder).or_default() += 1;
    }

    fn end(&mut self, holder: Holder) {
        self.total = self.total.saturating_sub(1);
        if let Some(count) = self.by_holder.get_mut(&holder) {
            *count = count.saturating_sub(1);
        }
    }

    fn of(&self, holder: Holder) -> usize {
        self.by_holder.get(&holder).copied().unwrap_or_default()
    }
}

/// Opens a session. Its row is a first write: a primary that waits in vain for its replicas fails here.
///
/// Its statements are planned once. A plan per batch would be the same, and costs a tenth of a large transaction and
/// more than a third of a small one.
async fn begin(link: &Link, settings: &Settings) -> Result<i64, PostgresError> {
    let set = format!(
        "SET plan_cache_mode = force_generic_plan; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}",
        lock_wait(settings).as_millis(),
        (settings.busy_timeout * 2).as_millis()
    );
    link.client.batch_execute(&set).await?;
    link.client.batch_execute(REMOVE_OLD).await?;
    let row = link.client.query_one("INSERT INTO ledger_session (batch) VALUES (0) RETURNING id", &[]);
    Ok(link.notices.durably(row).await?.try_get(0)?)
}

/// Longest wait for a lock; ends before the primary counts as silent. Never 0, which would be no limit.
fn lock_wait(settings: &Settings) -> Duration {
    settings.lock_wait.min(settings.database_timeout / 4).max(Duration::from_millis(1))
}

impl Statements {
    async fn prepare(link: &Link) -> Result<Self, PostgresError> {
        let client = &link.client;
        let lock_whole =
            format!("SELECT {BOOK_COLUMNS} FROM book WHERE id = ANY($1::integer[]) ORDER BY id FOR NO KEY UPDATE");
        Ok(Self {
            count: client.prepare(COUNT).await?,
            lock: client.prepare(LOCK).await?,
            lock_free: client.prepare(&format!("{LOCK}{SKIP}")).await?,
            lock_ending: client.prepare(&lock_ending()).await?,
            lock_ending_free: client.prepare(&format!("{}{SKIP}", lock_ending())).await?,
            lock_due: client.prepare(&lock_due()).await?,
            there: client.prepare(THERE).await?,
            lock_below: client.prepare(LOCK_BELOW).await?,
            find_keys: client.prepare(&find_keys()).await?,
            overdue: client.prepare(&overdue()).await?,
            held: client.prepare(HELD).await?,
            draw: client.prepare(&draw()).await?,
            change: client.prepare(CHANGE).await?,
            change_held: client.prepare(CHANGE_HELD).await?,
            hold: client.prepare(HOLD).await?,
            unhold: client.prepare(UNHOLD).await?,
            absent: client.prepare(ABSENT).await?,
            append: client.prepare(APPEND).await?,
            lock_whole: client.prepare(&lock_whole).await?,
            highest: client.prepare(HIGHEST).await?,
            add: client.prepare(ADD).await?,
            replace: client.prepare(REPLACE).await?,
            append_whole: client.prepare(APPEND_WHOLE).await?,
        })
    }
}

impl<'a> PostgresConnection<'a> {
    /// Connects, and begins a session.
    pub(super) fn open(
        runtime: Runtime,
        target: &'a Target,
        settings: &'a Settings,
        metrics: &'a Metrics,
        visible: &'a Visible,
    ) -> Result<Self, PostgresError> {
        let session = runtime.block_on(Session::open(target, settings, metrics, visible))?;
        Ok(Self { session, runtime })
    }
}

impl<'a> Session<'a> {
    async fn open(
        target: &'a Target,
        settings: &'a Settings,
        metrics: &'a Metrics,
        visible: &'a Visible,
    ) -> Result<Self, PostgresError> {
        let link = connect(target).await?;
        let id = timed(settings.database_timeout, begin(&link, settings)).await?;
        let statements = timed(settings.database_timeout, Statements::prepare(&link)).await?;
        target.pulse.beat();
        let (looked, open) = (Instant::now(), Counts::default());
        Ok(Self { target, link, statements, settings, metrics, visible, id, batch: 0, looked, open })
    }

    /// Replaces an ended connection, whose transaction was rolled back. Fails if the primary does not answer at once.
    async fn renew(&mut self) -> Result<(), PostgresError> {
        let Self { target, settings, metrics, visible, .. } = *self;
        *self = timed(RENEW, Self::open(target, settings, metrics, visible)).await?;
        Ok(())
    }

    /// The first round trip.
    async fn begin(&self, wanted: &Wanted, waits: bool, is_ending: bool) -> Result<Read, PostgresError> {
        let (client, statements) = (&self.link.client, &self.statements);
        let batch = self.batch + 1;
        let (lock, is_partial) = match wanted {
            Wanted::Named { waits: true, .. } if waits && is_ending => (&statements.lock_ending, false),
            Wanted::Named { waits: true, .. } if waits => (&statements.lock, false),
            Wanted::Named { .. } if is_ending => (&statements.lock_ending_free, true),
            Wanted::Named { .. } => (&statements.lock_free, true),
            Wanted::Whole { .. } => (&statements.lock_whole, false),
            Wanted::Below { .. } => (&statements.lock_below, false),
        };
        // Sent together, executed in this order.
        let trip = Box::pin(join4(
            client.batch_execute(BEGIN),
            async { client.execute(&statements.count, &[&self.id, &batch]).await },
            self.lock_and_read(wanted, lock, is_ending),
            async {
                match wanted {
                    Wanted::Named { books, .. } if is_partial => client.query(&statements.there, &[&ids(books)]).await,
                    _ => Ok(Vec::new()),
                }
            },
        ));
        self.answered(async {
            let (begun, counted, read, there) = trip.await;
            begun?;
            let is_counted = counted? == 1;
            let mut read = read?;
            for row in there? {
                let id = book_id(row.try_get(0)?)?;
                if !read.facts.books.contains_key(&id) {
                    read.facts.locked.insert(id);
                }
            }
            if is_counted { Ok(read) } else { Err(PostgresError::Ended) }
        })
        .await
    }

    /// Waits for an answer until the primary has been silent for too long on all connections.
    async fn answered<T>(&self, answer: impl Future<Output = Result<T, PostgresError>>) -> Result<T, PostgresError> {
        match timed(self.target.pulse.wait(), answer).await {
            Ok(answer) => {
                self.target.pulse.beat();
                Ok(answer)
            }
            Err(PostgresError::Silent(_)) => Err(PostgresError::Silent(self.target.timeout)),
            Err(error) => Err(error),
        }
    }

    /// Reads the wanted facts; the statement `lock` locks and reads books. If `is_ending`, also ends what is over.
    async fn lock_and_read(&self, wanted: &Wanted, lock: &Statement, is_ending: bool) -> Result<Read, PostgresError> {
        let (client, statements) = (&self.link.client, &self.statements);
        let (keys, ends, entries) = match wanted {
            Wanted::Named { keys, ends, entries, .. } => (bytes(keys), bytes(ends), *entries),
            Wanted::Whole { entries, .. } => (Vec::new(), Vec::new(), *entries),
            Wanted::Below { most, .. } => (Vec::new(), Vec::new(), *most),
        };
        let now_ms = self.settings.clock.as_ref().map(|clock| clock());
        // Sent together, executed in this order.
        let (books, (free, earlier, overdue), numbers, (highest, held)) = join4(
            async {
                match wanted {
                    Wanted::Named { books, .. } if is_ending => client.query(lock, &[&ids(books), &ends]).await,
                    Wanted::Named { books, .. } | Wanted::Whole { books, .. } => {
                        client.query(lock, &[&ids(books)]).await
                    }
                    Wanted::Below { amount, after, most } => {
                        let after = after.map_or(0, BookId::get);
                        client.query(lock, &[&after, &amount.cast_signed(), &to_i64(*most)]).await
                    }
                }
            },
            join3(
                async { if is_ending { client.query(&statements.lock_due, &[&now_ms]).await } else { Ok(Vec::new()) } },
                async {
                    if keys.is_empty() {
                        return Ok(Vec::new());
                    }
                    client.query(&statements.find_keys, &[&keys]).await
                },
                async { if is_ending { client.query(&statements.overdue, &[&now_ms]).await } else { Ok(Vec::new()) } },
            ),
            async { client.query_one(&statements.draw, &[&to_i64(entries), &is_ending, &now_ms]).await },
            join(
                async {
                    match wanted {
                        Wanted::Whole { highest: true, .. } => {
                            client.query_one(&statements.highest, &[]).await?.try_get(0)
                        }
                        _ => Ok(None),
                    }
                },
                async {
                    match wanted {
                        Wanted::Whole { books, .. } => client.query(&statements.held, &[&ids(books)]).await,
                        _ => Ok(Vec::new()),
                    }
                },
            ),
        )
        .await;
        let books: Vec<Row> = books?.into_iter().chain(free?).collect();
        let mut read = Read::new(wanted, &books, &numbers?)?;
        read.facts.whole.1 = highest?.map(book_id).transpose()?;
        for row in held? {
            let copies: i64 = row.try_get(1)?;
            read.facts.held.insert(book_id(row.try_get(0)?)?, u32::try_from(copies).unwrap_or(u32::MAX));
        }
        read.add_keys(&earlier?, wanted)?;
        read.add_overdue(&overdue?, entries)?;
        self.add_limits(wanted, &mut read);
        Ok(read)
    }

    /// Adds the reservations that may begin, beside those that are open and not overdue.
    fn add_limits(&self, wanted: &Wanted, read: &mut Read) {
        let (most, Read { facts, holders, .. }) = (self.settings.limits.reservations.get(), read);
        let overdue: Vec<Holder> = facts.overdue.iter().filter_map(|entry| holders.get(&entry.key?).copied()).collect();
        facts.holds_max = most;
        facts.holds_left = most.saturating_sub(self.open.total.saturating_sub(overdue.len()));
        if let Wanted::Named { holders, .. } = wanted {
            // One holder leaves half of them to others.
            let left = |holder: &Holder| {
                let ending = overdue.iter().filter(|other| *other == holder).count();
                most.div_ceil(2).saturating_sub(self.open.of(*holder).saturating_sub(ending))
            };
            facts.holds_left_to = holders.iter().map(|holder| (*holder, left(holder))).collect();
        }
    }

    /// Counts the open reservations, if some may begin and the last count is old.
    async fn count_holds(&mut self, wanted: &Wanted) -> Result<(), PostgresError> {
        let is_due = self
            .open
            .counted
            .is_none_or(|counted| counted.elapsed() >= COUNT_HOLDS_EVERY.max(self.open.took * COUNT_HOLDS_SHARE));
        if !is_due || !matches!(wanted, Wanted::Named { holders, .. } if !holders.is_empty()) {
            return Ok(());
        }
        let begun = Instant::now();
        let rows = self.answered(async { Ok(self.link.client.query(COUNT_HOLDS, &[]).await?) }).await?;
        let mut open = Counts { counted: Some(Instant::now()), took: begun.elapsed(), ..Counts::default() };
        for row in rows {
            let (holder, count): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            open.total = open.total.saturating_add(count);
            open.by_holder.insert(Holder::from_stored(holder), count);
        }
        self.open = open;
        Ok(())
    }

    /// The last round trip.
    async fn write_and_commit(&self, changes: &Changes) -> Result<(), Unfinished> {
        let (client, statements) = (&self.link.client, &self.statements);
        let (mut ids, mut stocks, mut prices) = (Vec::new(), (Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        let mut held = (Vec::new(), Vec::new());
        for change in &changes.books {
            ids.push(change.id.get());
            stocks.0.push(change.stock.0.cast_signed());
            stocks.1.push(change.stock.1.cast_signed());
            prices.0.push(change.price_cents.0);
            prices.1.push(change.price_cents.1);
            held.0.push(change.held.0.cast_signed());
            held.1.push(change.held.1.cast_signed());
        }
        let is_held_changed = held.0 != held.1;
        let mut entries: Vec<&Entry> = changes.entries.iter().collect();
        entries.sort_unstable_by_key(|entry| entry.key.as_ref().map(|key| (key.as_bytes(), key.owner())));
        let mut columns = Columns::default();
        if entries.iter().any(|entry| entry.actor.is_some() || entry.until_ms.is_some()) {
            columns.actors = entries.iter().map(|entry| entry.actor.as_ref().map(Actor::as_str)).collect();
            columns.untils = entries.iter().map(|entry| entry.until_ms).collect();
        }
        for entry in entries {
            columns.push(entry);
        }
        let Columns { numbers, times, kinds, books, quantities, befores, afters, keys, owners, actors, untils } =
            &columns;
        let holds = HoldColumns::of(changes);
        let (new, known): (Vec<_>, Vec<_>) = changes.puts.iter().partition(|put| put.before.is_none());
        let [new, known] = [new, known].map(|puts| Wholes::of(puts.into_iter().map(|put| &put.after)));
        let trip = Box::pin(join3(
            async {
                if is_held_changed {
                    let values: [&(dyn ToSql + Sync); 7] =
                        [&ids, &stocks.0, &stocks.1, &prices.0, &prices.1, &held.0, &held.1];
                    client.query_one(&statements.change_held, &values).await?;
                } else if !ids.is_empty() {
                    client.query_one(&statements.change, &[&ids, &stocks.0, &stocks.1, &prices.0, &prices.1]).await?;
                }
                // Sent together with the rest.
                let (added, replaced) =
                    join(new.write(&self.link, &statements.add), known.write(&self.link, &statements.replace)).await;
                added.and(replaced)
            },
            async {
                let values: [&(dyn ToSql + Sync); 11] =
                    [numbers, times, kinds, books, quantities, befores, afters, keys, owners, actors, untils];
                // Sent together with the rest.
                let (appended, held) = join(
                    async {
                        if !actors.is_empty() {
                            client.execute(&statements.append_whole, &values).await?;
                        } else if !numbers.is_empty() {
                            client.execute(&statements.append, &values[..9]).await?;
                        }
                        Ok(())
                    },
                    holds.write(&self.link, statements),
                )
                .await;
                appended.and(held)
            },
            client.batch_execute("COMMIT"),
        ));
        let committed = async {
            let mut written = Ok(());
            let commit = async {
                let (changed, appended, committed) = trip.await;
                written = changed.and(appended);
                committed
            };
            let committed = self.link.notices.durably(commit).await;
            Ok((written, committed))
        };
        let (written, committed) =
            timed(self.settings.database_timeout, committed).await.map_err(Unfinished::Unknown)?;
        written.map_err(Unfinished::from_writing)?;
        committed.map_err(Unfinished::Unknown)
    }

    async fn rollback(&self) -> Result<(), PostgresError> {
        self.answered(async { Ok(self.link.client.batch_execute("ROLLBACK").await?) }).await
    }
}

fn bytes(keys: &[IdempotencyKey]) -> Vec<&[u8]> {
    keys.iter().map(IdempotencyKey::as_bytes).collect()
}

fn ids(books: &BTreeSet<BookId>) -> Vec<i32> {
    books.iter().map(|id| id.get()).collect()
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// State of a transaction that was not committed.
enum Unfinished {
    /// It is still open.
    Open(PostgresError),
    /// It was rolled back.
    Undone(PostgresError),
    /// Its outcome is unknown.
    Unknown(PostgresError),
}

impl Unfinished {
    /// For errors after COMMIT was sent. An error reply fails the transaction, and COMMIT then rolls it back; after a
    /// lost connection the outcome is unknown.
    fn from_writing(error: Error) -> Self {
        let error = PostgresError::from(error);
        if error.is_refusal() { Self::Undone(error) } else { Self::Unknown(error) }
    }

    /// For errors before any write: a lost connection rolls the transaction back.
    fn from_open(error: PostgresError) -> Self {
        if error.is_refusal() { Self::Open(error) } else { Self::Undone(error) }
    }
}

/// The reservations that begin and end, column by column.
#[derive(Default)]
struct HoldColumns {
    books: Vec<i32>,
    numbers: Vec<i64>,
    quantities: Vec<i32>,
    untils: Vec<i64>,
    holders: Vec<i64>,
    /// Book and number of those that end.
    ended: (Vec<i32>, Vec<i64>),
    /// Books that do not exist.
    absent: Vec<i32>,
}

impl HoldColumns {
    fn of(changes: &Changes) -> Self {
        let mut all = Self::default();
        let begun = changes.entries.iter().filter(|entry| entry.kind == EntryKind::Reserved);
        for (entry, holder) in begun.zip(&changes.holders) {
            all.books.push(entry.book.get());
            all.numbers.push(entry.number);
            all.quantities.push(entry.quantity.unwrap_or_default().cast_signed());
            all.untils.push(entry.until_ms.unwrap_or_default());
            all.holders.push(holder.stored());
        }
        all.ended = changes.ended.iter().map(|reserved| (reserved.book.get(), reserved.number)).unzip();
        if !changes.ended.is_empty() {
            let absent = changes.entries.iter().filter(|entry| entry.ends_reservation() && entry.before.is_none());
            all.absent = absent.map(|entry| entry.book.get()).collect();
        }
        all
    }

    async fn write(&self, link: &Link, statements: &Statements) -> Result<(), Error> {
        let Self { books, numbers, quantities, untils, holders, ended, absent } = self;
        let (begun, gone, absent) = join3(
            async {
                if !books.is_empty() {
                    link.client.execute(&statements.hold, &[books, numbers, quantities, untils, holders]).await?;
                }
                Ok(())
            },
            async {
                if !ended.0.is_empty() {
                    link.client.query_one(&statements.unhold, &[&ended.0, &ended.1]).await?;
                }
                Ok(())
            },
            async {
                if !absent.is_empty() {
                    link.client.query_one(&statements.absent, &[absent]).await?;
                }
                Ok(())
            },
        )
        .await;
        begun.and(gone).and(absent)
    }
}

/// Facts, and all numbers that the transaction drew for them, used or not.
struct Read {
    facts: Facts,
    drawn: Vec<RangeInclusive<i64>>,
    /// Holders of the open reservations among the facts.
    holders: HashMap<IdempotencyKey, Holder>,
}

impl Read {
    fn new(wanted: &Wanted, books: &[Row], numbers: &Row) -> Result<Self, PostgresError> {
        let mut facts = Facts::default();
        for row in books {
            if matches!(wanted, Wanted::Whole { .. }) {
                let (book, _) = book(row, 0)?;
                facts.whole.0.insert(book.id, book);
                continue;
            }
            let id = book_id(row.try_get(0)?)?;
            facts.books.insert(id, book_facts(row, 1)?);
            facts.below.0.push(id);
        }
        if let Wanted::Below { most, .. } = wanted {
            facts.below.1 = facts.below.0.last().copied().filter(|_| facts.below.0.len() >= *most);
        }
        let mut values: Vec<i64> = numbers.try_get::<_, Option<Vec<i64>>>(0)?.unwrap_or_default();
        values.sort_unstable();
        let drawn: Vec<_> = values.into_iter().map(|first| first..=first + NUMBERS_A_VALUE - 1).collect();
        facts.numbers = drawn.clone().into_iter().flatten();
        facts.holds_ms = numbers.try_get(1)?;
        Ok(Self { facts, drawn, holders: HashMap::new() })
    }

    /// Adds the rows of [`find_keys`].
    fn add_keys(&mut self, rows: &[Row], wanted: &Wanted) -> Result<(), PostgresError> {
        let Self { facts, holders, .. } = self;
        let ends: HashSet<&IdempotencyKey> = match wanted {
            Wanted::Named { ends, .. } => ends.iter().collect(),
            Wanted::Whole { .. } | Wanted::Below { .. } => HashSet::new(),
        };
        for row in rows {
            let (entry, holder, is_there) = (entry(row)?, row.try_get(11)?, row.try_get::<_, Option<bool>>(12)?);
            let Some(key) = entry.key else { continue };
            if entry.ends_reservation() {
                facts.ends.insert(key, entry);
                continue;
            }
            if let Some(holder) = holder {
                holders.insert(key, Holder::from_stored(holder));
            } else if entry.kind == EntryKind::Reserved {
                facts.lost_ends.insert(key);
            }
            if is_there == Some(true) && ends.contains(&key) && !facts.books.contains_key(&entry.book) {
                facts.locked.insert(entry.book);
            }
            facts.earlier.insert(key, entry);
        }
        let Facts { lost_ends, ends, .. } = facts;
        lost_ends.retain(|key| !ends.contains_key(key));
        Ok(())
    }

    /// Adds the rows of [`overdue`] whose books are locked or do not exist, as far as there are numbers for them beside
    /// those of `entries`. The others are left to a later transaction.
    fn add_overdue(&mut self, rows: &[Row], entries: usize) -> Result<(), PostgresError> {
        let numbers: usize = self.drawn.len() * usize::try_from(NUMBERS_A_VALUE).unwrap_or_default();
        for row in rows {
            let (entry, holder, is_there) = (entry(row)?, row.try_get(11)?, row.try_get::<_, bool>(12)?);
            let is_taken = self.facts.books.contains_key(&entry.book) || !is_there;
            if is_taken && self.facts.overdue.len() + entries < numbers {
                self.holders.extend(entry.key.map(|key| (key, Holder::from_stored(holder))));
                self.facts.overdue.push(entry);
            }
        }
        Ok(())
    }
}

/// A transaction, with its attempts.
struct PostgresTransaction<'t, 'a> {
    connection: &'t mut PostgresConnection<'a>,
    begun: Instant,
    tries: usize,
    /// False once a wait for a book was in vain.
    waits: bool,
    is_named: bool,
    drawn: Vec<RangeInclusive<i64>>,
    holders: HashMap<IdempotencyKey, Holder>,
}

impl LedgerTransaction for PostgresTransaction<'_, '_> {
    fn read(&mut self, wanted: &Wanted) -> Result<Facts, TransactionError> {
        self.tries += 1;
        self.is_named = matches!(wanted, Wanted::Named { .. });
        let PostgresConnection { session, runtime } = &mut *self.connection;
        // Not the batches of purchases between two looks.
        let is_ending = match wanted {
            Wanted::Named { ends, holders, .. } => {
                !ends.is_empty() || !holders.is_empty() || session.looked.elapsed() >= LOOK
            }
            Wanted::Whole { .. } | Wanted::Below { .. } => false,
        };
        let read = async {
            session.count_holds(wanted).await?;
            session.begin(wanted, self.waits, is_ending).await
        };
        match runtime.block_on(read) {
            Ok(Read { facts, drawn, holders }) => {
                if is_ending && facts.overdue.len() < OVERDUE_MAX {
                    session.looked = Instant::now();
                }
                (self.drawn, self.holders) = (drawn, holders);
                Ok(facts)
            }
            Err(error) => Err(self.failed(Unfinished::from_open(error))),
        }
    }

    fn read_more(&mut self, first: &Wanted, more: &Wanted, facts: &mut Facts) -> Result<(), TransactionError> {
        let PostgresConnection { session, runtime } = &mut *self.connection;
        let read = async {
            session.count_holds(more).await?;
            let read = Box::pin(session.lock_and_read(more, &session.statements.lock_free, false));
            session.answered(read).await
        };
        match runtime.block_on(read) {
            Ok(read) => {
                self.drawn.extend(read.drawn);
                self.holders.extend(read.holders);
                facts.add(first, more, read.facts);
                Ok(())
            }
            Err(error) => Err(self.failed(Unfinished::from_open(error))),
        }
    }

    fn commit(&mut self, changes: &Changes) -> Result<(), TransactionError> {
        let PostgresConnection { session, runtime } = &mut *self.connection;
        if changes.entries.iter().any(|entry| entry.number < 1) {
            let reason = "too few numbers were drawn for the log".to_owned();
            let undone = runtime.block_on(session.rollback()).map_err(Unfinished::Undone);
            return Err(match undone {
                Ok(()) => TransactionError::Refused(Fault::Failed(reason)),
                Err(lost) => self.failed(lost),
            });
        }
        let done = runtime.block_on(async {
            if changes.is_empty() {
                return session.rollback().await.map_err(Unfinished::Undone);
            }
            let start = Instant::now();
            session.write_and_commit(changes).await?;
            session.batch += 1;
            session.target.pulse.beat();
            session.metrics.committed(changes.entries.len(), start.elapsed());
            Ok(())
        });
        done.map_err(|unfinished| self.failed(unfinished))
    }

    fn publish(&mut self, changes: &Changes) {
        let open = &mut self.connection.session.open;
        let begun =
            changes.entries.iter().filter(|entry| entry.kind == EntryKind::Reserved).filter_map(|entry| entry.key);
        for (key, holder) in begun.zip(&changes.holders) {
            open.begin(*holder);
            self.holders.insert(key, *holder);
        }
        let ended = changes.ended.iter().filter_map(|reserved| self.holders.get(&reserved.key?));
        ended.for_each(|holder| open.end(*holder));
        if !changes.is_empty() {
            self.connection.session.visible.publish(changes, mem::take(&mut self.drawn));
        }
    }
}

impl PostgresTransaction<'_, '_> {
    /// Ends a failed attempt, and decides whether there is another.
    fn failed(&mut self, unfinished: Unfinished) -> TransactionError {
        let PostgresConnection { session, runtime } = &mut *self.connection;
        let (error, is_open) = match unfinished {
            Unfinished::Unknown(error) => {
                let transaction = TransactionId { session: session.id, batch: session.batch + 1 };
                return TransactionError::Unknown(error.into(), Some(transaction));
            }
            Unfinished::Open(error) => match runtime.block_on(session.rollback()) {
                Ok(()) => (error, true),
                Err(lost) => (lost, false),
            },
            Unfinished::Undone(error) => (error, false),
        };
        let is_again = if error.is_lock() && is_open {
            // Once more, leaving out those of the named books that are locked.
            mem::take(&mut self.waits) && self.is_named
        } else if error.is_lock() {
            // Another transaction writes one of the keys.
            self.begun.elapsed() < session.settings.busy_timeout
        } else {
            self.tries < TRIES && (error.is_race() || error.is_cut() && runtime.block_on(session.renew()).is_ok())
        };
        if is_again { TransactionError::Again } else { error.before_commit() }
    }
}

impl LedgerConnection for PostgresConnection<'_> {
    fn begin(&mut self) -> Result<Box<dyn LedgerTransaction + '_>, TransactionError> {
        let (begun, tries, drawn, holders) = (Instant::now(), 0, Vec::new(), HashMap::new());
        let (waits, is_named) = (true, false);
        Ok(Box::new(PostgresTransaction { connection: self, begun, tries, waits, is_named, drawn, holders }))
    }

    /// Nothing to do: each transaction reads its facts anew.
    fn read_back(&mut self) -> Result<(), Broken> {
        Ok(())
    }

    /// Ends the transaction's session. A transaction of it that is still under way holds the session's row, so this
    /// waits for its end; one that has not begun on the server yet can no longer be committed, because its session has
    /// ended. This is a write as well and waits for the replicas, so its result is as durable as any commit. Without
    /// the row nothing is known.
    fn settle(&mut self, transaction: &TransactionId) -> Result<Option<bool>, Broken> {
        let Self { session, runtime } = self;
        let client = &session.link.client;
        let lock_timeout = |wait: Duration| format!("SET lock_timeout = {}", wait.as_millis());
        let sql = "UPDATE ledger_session SET ended = true WHERE id = $1 RETURNING batch";
        let ended = async {
            client.batch_execute(&lock_timeout(session.settings.busy_timeout)).await?;
            let row = session.link.notices.durably(client.query_opt(sql, &[&transaction.session])).await?;
            client.batch_execute(&lock_timeout(lock_wait(session.settings))).await?;
            Ok(row)
        };
        let row: Option<Row> = runtime.block_on(timed(session.settings.database_timeout, ended))?;
        let last: Option<i64> = row.map(|row| row.try_get(0)).transpose().map_err(PostgresError::from)?;
        Ok(last.map(|last| last >= transaction.batch))
    }

    fn has_overdue_holds(&mut self) -> bool {
        let Self { session, runtime } = self;
        if session.looked.elapsed() < LOOK {
            return false;
        }
        let sql = format!("SELECT EXISTS (SELECT FROM hold WHERE until_ms <= {})", clock("$1"));
        let now_ms = session.settings.clock.as_ref().map(|clock| clock());
        let found = session.answered(async { Ok(session.link.client.query_one(&sql, &[&now_ms]).await?.try_get(0)?) });
        // A lost connection is replaced later.
        let is_found = runtime.block_on(found).unwrap_or(false);
        if !is_found {
            session.looked = Instant::now();
        }
        is_found
    }

    fn tend(&mut self, is_idle: bool) -> Result<(), Broken> {
        if !is_idle {
            return Ok(());
        }
        let Self { session, runtime } = self;
        runtime.block_on(async {
            // Lets the connection notice that it was closed.
            tokio::time::sleep(Duration::ZERO).await;
            if session.link.client.is_closed() {
                return session.renew().await;
            }
            if session.target.pulse.is_due() {
                session.answered(async { Ok(session.link.client.batch_execute("").await?) }).await?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Removes the session's row.
    fn close(self: Box<Self>) -> Result<(), Broken> {
        let Self { session, runtime } = &*self;
        let remove = async {
            Ok(session.link.client.execute("DELETE FROM ledger_session WHERE id = $1", &[&session.id]).await?)
        };
        // A remaining row is harmless.
        let _ = runtime.block_on(timed(session.settings.database_timeout, remove));
        Ok(())
    }
}
