//! The ledger's transactions, one at a time on a separate connection, in two round trips: the first locks books and reads facts, and
//! after the ledger's decision the last writes and commits. Another comes between them if enough work arrived during
//! waits for locks.
//!
//! Under READ COMMITTED each statement sees all commits before its start, so a book's row is read after its lock was
//! acquired, and keys are looked up after that. Two servers cannot deadlock: books' rows are locked in the order of
//! ids, and then keys are inserted in byte order. The guards in the last trip repeat the reads of the first; a failing
//! guard fails the transaction, and COMMIT rolls it back.

use std::{
    collections::BTreeSet,
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
        interface::{Broken, Changes, LedgerConnection, LedgerTransaction, TransactionError, TransactionId},
    },
    errors::PostgresError,
    link::{Link, connect, timed},
    rows::{APPEND, APPEND_OPERATORS, BOOK_COLUMNS, Columns, ENTRY_COLUMNS, book, book_facts, book_id, entry},
    schema::NUMBERS_A_VALUE,
    target::Target,
    visible::Visible,
};
use crate::{
    domain::{Actor, BookId, Entry, IdempotencyKey, NewBook},
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

const LOCK: &str =
    "SELECT id, stock, price_cents, listed FROM book WHERE id = ANY($1::integer[]) ORDER BY id FOR NO KEY UPDATE";

/// Locks only the books that no one holds: to wait for others while holding some could be a deadlock, and books locked
/// for long are left out.
const LOCK_FREE: &str = "SELECT id, stock, price_cents, listed FROM book WHERE id = ANY($1::integer[]) ORDER BY id \
    FOR NO KEY UPDATE SKIP LOCKED";

/// Distinguishes books that were left out from those that do not exist.
const THERE: &str = "SELECT id FROM book WHERE id = ANY($1::integer[])";

const LOCK_BELOW: &str = "SELECT id, stock, price_cents, listed FROM book WHERE id > $1 AND stock < $2 AND listed \
    ORDER BY id LIMIT $3 FOR NO KEY UPDATE";

const HIGHEST: &str = "SELECT max(id) FROM book";

const DRAW: &str = "SELECT array_agg(nextval('entry_number')) FROM generate_series(1, $1::bigint)";

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
    there: Statement,
    lock_below: Statement,
    find_keys: Statement,
    draw: Statement,
    change: Statement,
    append: Statement,
    lock_whole: Statement,
    highest: Statement,
    add: Statement,
    replace: Statement,
    append_operators: Statement,
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
        let find_keys = format!("SELECT {ENTRY_COLUMNS} FROM entry WHERE idempotency_key = ANY($1::bytea[])");
        Ok(Self {
            count: client.prepare(COUNT).await?,
            lock: client.prepare(LOCK).await?,
            lock_free: client.prepare(LOCK_FREE).await?,
            there: client.prepare(THERE).await?,
            lock_below: client.prepare(LOCK_BELOW).await?,
            find_keys: client.prepare(&find_keys).await?,
            draw: client.prepare(DRAW).await?,
            change: client.prepare(CHANGE).await?,
            append: client.prepare(APPEND).await?,
            lock_whole: client.prepare(&lock_whole).await?,
            highest: client.prepare(HIGHEST).await?,
            add: client.prepare(ADD).await?,
            replace: client.prepare(REPLACE).await?,
            append_operators: client.prepare(APPEND_OPERATORS).await?,
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
        Ok(Self { target, link, statements, settings, metrics, visible, id, batch: 0 })
    }

    /// Replaces an ended connection, whose transaction was rolled back. Fails if the primary does not answer at once.
    async fn renew(&mut self) -> Result<(), PostgresError> {
        let Self { target, settings, metrics, visible, .. } = *self;
        *self = timed(RENEW, Self::open(target, settings, metrics, visible)).await?;
        Ok(())
    }

    /// The first round trip.
    async fn begin(&self, wanted: &Wanted, waits: bool) -> Result<Read, PostgresError> {
        let (client, statements) = (&self.link.client, &self.statements);
        let batch = self.batch + 1;
        let (lock, is_partial) = match wanted {
            Wanted::Named { waits: true, .. } if waits => (&statements.lock, false),
            Wanted::Named { .. } => (&statements.lock_free, true),
            Wanted::Whole { .. } => (&statements.lock_whole, false),
            Wanted::Below { .. } => (&statements.lock_below, false),
        };
        // Sent together, executed in this order.
        let trip = Box::pin(join4(
            client.batch_execute(BEGIN),
            async { client.execute(&statements.count, &[&self.id, &batch]).await },
            self.lock_and_read(wanted, lock),
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

    /// Reads the wanted facts; the statement `lock` locks and reads books.
    async fn lock_and_read(&self, wanted: &Wanted, lock: &Statement) -> Result<Read, PostgresError> {
        let (client, statements) = (&self.link.client, &self.statements);
        let (keys, entries): (Vec<&[u8]>, usize) = match wanted {
            Wanted::Named { keys, entries, .. } => (keys.iter().map(IdempotencyKey::as_bytes).collect(), *entries),
            Wanted::Whole { entries, .. } => (Vec::new(), *entries),
            Wanted::Below { most, .. } => (Vec::new(), *most),
        };
        let values = (to_i64(entries) + NUMBERS_A_VALUE - 1) / NUMBERS_A_VALUE;
        // Sent together, executed in this order.
        let (books, earlier, numbers, highest) = join4(
            async {
                match wanted {
                    Wanted::Named { books, .. } | Wanted::Whole { books, .. } => {
                        client.query(lock, &[&ids(books)]).await
                    }
                    Wanted::Below { amount, after, most } => {
                        let after = after.map_or(0, BookId::get);
                        client.query(lock, &[&after, &amount.cast_signed(), &to_i64(*most)]).await
                    }
                }
            },
            async {
                if keys.is_empty() {
                    return Ok(Vec::new());
                }
                client.query(&statements.find_keys, &[&keys]).await
            },
            async { client.query_one(&statements.draw, &[&values]).await },
            async {
                match wanted {
                    Wanted::Whole { highest: true, .. } => client.query_one(&statements.highest, &[]).await?.try_get(0),
                    _ => Ok(None),
                }
            },
        )
        .await;
        let mut read = Read::new(wanted, &books?, &earlier?, &numbers?)?;
        read.facts.whole.1 = highest?.map(book_id).transpose()?;
        Ok(read)
    }

    /// The last round trip.
    async fn write_and_commit(&self, changes: &Changes) -> Result<(), Unfinished> {
        let (client, statements) = (&self.link.client, &self.statements);
        let (mut ids, mut stocks, mut prices) = (Vec::new(), (Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for change in &changes.books {
            ids.push(change.id.get());
            stocks.0.push(change.stock.0.cast_signed());
            stocks.1.push(change.stock.1.cast_signed());
            prices.0.push(change.price_cents.0);
            prices.1.push(change.price_cents.1);
        }
        let mut entries: Vec<&Entry> = changes.entries.iter().collect();
        entries.sort_unstable_by_key(|entry| entry.key.as_ref().map(|key| (key.as_bytes(), key.owner())));
        let mut columns = Columns::default();
        if entries.iter().any(|entry| entry.actor.is_some()) {
            columns.actors = entries.iter().map(|entry| entry.actor.as_ref().map(Actor::as_str)).collect();
        }
        for entry in entries {
            columns.push(entry);
        }
        let Columns { numbers, times, kinds, books, quantities, befores, afters, keys, owners, actors } = &columns;
        let (new, known): (Vec<_>, Vec<_>) = changes.puts.iter().partition(|put| put.before.is_none());
        let [new, known] = [new, known].map(|puts| Wholes::of(puts.into_iter().map(|put| &put.after)));
        let trip = Box::pin(join3(
            async {
                if !ids.is_empty() {
                    client.query_one(&statements.change, &[&ids, &stocks.0, &stocks.1, &prices.0, &prices.1]).await?;
                }
                // Sent together with the rest.
                let (added, replaced) =
                    join(new.write(&self.link, &statements.add), known.write(&self.link, &statements.replace)).await;
                added.and(replaced)
            },
            async {
                let values: [&(dyn ToSql + Sync); 10] =
                    [numbers, times, kinds, books, quantities, befores, afters, keys, owners, actors];
                if !actors.is_empty() {
                    client.execute(&statements.append_operators, &values).await?;
                } else if !numbers.is_empty() {
                    client.execute(&statements.append, &values[..9]).await?;
                }
                Ok(())
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

/// Facts, and all numbers that the transaction drew for them, used or not.
struct Read {
    facts: Facts,
    drawn: Vec<RangeInclusive<i64>>,
}

impl Read {
    fn new(wanted: &Wanted, books: &[Row], keys: &[Row], numbers: &Row) -> Result<Self, PostgresError> {
        let mut facts = Facts::default();
        for row in books {
            if matches!(wanted, Wanted::Whole { .. }) {
                let book = book(row, 0)?;
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
        for row in keys {
            let entry = entry(row)?;
            facts.earlier.extend(entry.key.map(|key| (key, entry)));
        }
        let mut values: Vec<i64> = numbers.try_get::<_, Option<Vec<i64>>>(0)?.unwrap_or_default();
        values.sort_unstable();
        let drawn: Vec<_> = values.into_iter().map(|first| first..=first + NUMBERS_A_VALUE - 1).collect();
        facts.numbers = drawn.clone().into_iter().flatten();
        Ok(Self { facts, drawn })
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
}

impl LedgerTransaction for PostgresTransaction<'_, '_> {
    fn read(&mut self, wanted: &Wanted) -> Result<Facts, TransactionError> {
        self.tries += 1;
        self.is_named = matches!(wanted, Wanted::Named { .. });
        let PostgresConnection { session, runtime } = &*self.connection;
        match runtime.block_on(session.begin(wanted, self.waits)) {
            Ok(Read { facts, drawn }) => {
                self.drawn = drawn;
                Ok(facts)
            }
            Err(error) => Err(self.failed(Unfinished::from_open(error))),
        }
    }

    fn read_more(&mut self, first: &Wanted, more: &Wanted, facts: &mut Facts) -> Result<(), TransactionError> {
        let PostgresConnection { session, runtime } = &*self.connection;
        let read = session.lock_and_read(more, &session.statements.lock_free);
        match runtime.block_on(session.answered(read)) {
            Ok(read) => {
                self.drawn.extend(read.drawn);
                facts.add(first, more, read.facts);
                Ok(())
            }
            Err(error) => Err(self.failed(Unfinished::from_open(error))),
        }
    }

    fn commit(&mut self, changes: &Changes) -> Result<(), TransactionError> {
        let PostgresConnection { session, runtime } = &mut *self.connection;
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
        let (begun, tries, drawn) = (Instant::now(), 0, Vec::new());
        Ok(Box::new(PostgresTransaction { connection: self, begun, tries, waits: true, is_named: false, drawn }))
    }

    /// Nothing to do: each transaction reads its facts anew.
    fn read_back(&mut self) -> Result<(), Broken> {
        Ok(())
    }

    /// Ends the transaction's session. A transaction of it that is still under way holds the session's row, so this
    /// waits for its end; one that has not begun on the server yet can no longer be committed, because its session has
    /// ended. This is a write as well and waits for the replicas, so its result is as durable as any commit. Without the
    /// row nothing is known.
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
