//! One transaction at a time on a separate connection, in two round trips: the first locks books and reads facts, and
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
    time::{Duration, Instant},
};

use futures_util::future::{join3, join4};
use tokio::runtime::Runtime;
use tokio_postgres::{Error, Row, Statement, types::ToSql};

use super::{
    super::interface::{Attempt, Broken, Changes, Failure, Session, Wanted, Work},
    found::Found,
    link::{Link, connect, timed},
    rows::{APPEND, Columns, ENTRY_COLUMNS},
    schema::NUMBERS_A_VALUE,
    shown::Shown,
    target::Target,
    trouble::Trouble,
};
use crate::{
    domain::{BookId, Entry, IdempotencyKey},
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
const COUNT: &str =
    "UPDATE ledger_session SET batch = $2::bigint WHERE id = $1 AND batch = $2::bigint - 1 AND NOT ended";

const LOCK: &str =
    "SELECT id, stock, price_cents FROM book WHERE id = ANY($1::integer[]) ORDER BY id FOR NO KEY UPDATE";

/// Locks only the books that no one holds: to wait for others while holding some could be a deadlock, and books locked
/// for long are left out.
const LOCK_FREE: &str = "SELECT id, stock, price_cents FROM book WHERE id = ANY($1::integer[]) ORDER BY id \
    FOR NO KEY UPDATE SKIP LOCKED";

/// Distinguishes books that were left out from those that do not exist.
const THERE: &str = "SELECT id FROM book WHERE id = ANY($1::integer[])";

const LOCK_BELOW: &str = "SELECT id, stock, price_cents FROM book WHERE id > $1 AND stock < $2 ORDER BY id LIMIT $3 \
    FOR NO KEY UPDATE";

const DRAW: &str = "SELECT array_agg(nextval('entry_number')) FROM generate_series(1, $1::bigint)";

/// Changes all books, or fails by a division by zero.
const CHANGE: &str = "WITH changed AS (UPDATE book SET stock = c.stock, price_cents = c.price \
    FROM (SELECT unnest($1::integer[]) AS id, unnest($2::integer[]) AS stock_before, unnest($3::integer[]) AS stock, \
        unnest($4::bigint[]) AS price_before, unnest($5::bigint[]) AS price) c \
    WHERE book.id = c.id AND book.stock = c.stock_before AND book.price_cents = c.price_before RETURNING 1) \
    SELECT 1 / (count(*) = cardinality($1))::integer FROM changed";

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
}

/// A writing connection.
pub(super) struct PostgresSession<'a> {
    runtime: &'a Runtime,
    target: &'a Target,
    link: Link,
    statements: Statements,
    settings: &'a Settings,
    metrics: &'a Metrics,
    shown: &'a Shown,
    /// Its row in `ledger_session`, and the last committed batch.
    id: i64,
    batch: i64,
}

/// Opens a session. Its row is a first write: a primary that waits in vain for its replicas fails here.
///
/// Its statements are planned once. A plan per batch would be the same, and costs a tenth of a large transaction and
/// more than a third of a small one.
async fn begin(link: &Link, settings: &Settings) -> Result<i64, Trouble> {
    let set = format!(
        "SET plan_cache_mode = force_generic_plan; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}",
        lock_wait(settings).as_millis(),
        (settings.busy_timeout * 2).as_millis()
    );
    link.client.batch_execute(&set).await?;
    let old = "DELETE FROM ledger_session WHERE ended AND since < now() - interval '1 day'";
    link.client.batch_execute(old).await?;
    let row = link.client.query_one("INSERT INTO ledger_session (batch) VALUES (0) RETURNING id", &[]);
    Ok(link.said.durably(row).await?.try_get(0)?)
}

/// Longest wait for a lock; ends before the primary counts as silent. Never 0, which would be no limit.
fn lock_wait(settings: &Settings) -> Duration {
    settings.lock_wait.min(settings.database_timeout / 4).max(Duration::from_millis(1))
}

impl Statements {
    async fn prepare(link: &Link) -> Result<Self, Trouble> {
        let client = &link.client;
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
        })
    }
}

impl<'a> PostgresSession<'a> {
    /// Connects, and begins a session.
    pub(super) async fn open(
        runtime: &'a Runtime,
        target: &'a Target,
        settings: &'a Settings,
        metrics: &'a Metrics,
        shown: &'a Shown,
    ) -> Result<Self, Trouble> {
        let link = connect(target).await?;
        let id = timed(settings.database_timeout, begin(&link, settings)).await?;
        let statements = timed(settings.database_timeout, Statements::prepare(&link)).await?;
        target.pulse.beat();
        Ok(Self { runtime, target, link, statements, settings, metrics, shown, id, batch: 0 })
    }

    /// Replaces an ended connection, whose transaction was rolled back. Fails if the primary does not answer at once.
    async fn renew(&mut self) -> Result<(), Trouble> {
        let Self { runtime, target, settings, metrics, shown, .. } = *self;
        *self = timed(RENEW, Self::open(runtime, target, settings, metrics, shown)).await?;
        Ok(())
    }

    /// Removes the session's row, before the connection is closed.
    pub(super) async fn end(self) {
        // A remaining row is harmless.
        let _ = timed(self.settings.database_timeout, async {
            Ok(self.link.client.execute("DELETE FROM ledger_session WHERE id = $1", &[&self.id]).await?)
        })
        .await;
    }

    async fn run(&mut self, work: &mut dyn Work) -> Result<(), Failure> {
        let (begun, mut tries, mut waits) = (Instant::now(), 0, true);
        loop {
            tries += 1;
            let (trouble, is_open) = match self.attempt(work, waits).await {
                Ok(()) => return Ok(()),
                Err(Unfinished::Unknown(trouble)) => {
                    let attempt = Attempt { session: self.id, batch: self.batch + 1 };
                    return Err(Failure::Unknown(trouble.into(), Some(attempt)));
                }
                Err(Unfinished::Open(trouble)) => match self.rollback().await {
                    Ok(()) => (trouble, true),
                    Err(lost) => (lost, false),
                },
                Err(Unfinished::Undone(trouble)) => (trouble, false),
            };
            let is_again = if trouble.is_lock() && is_open {
                // Once more, leaving out those of the named books that are locked.
                mem::take(&mut waits) && matches!(work.wanted(), Wanted::Named { .. })
            } else if trouble.is_lock() {
                // Another transaction writes one of the keys.
                begun.elapsed() < self.settings.busy_timeout
            } else {
                tries < TRIES && (trouble.is_race() || trouble.is_cut() && self.renew().await.is_ok())
            };
            if !is_again {
                return Err(trouble.before_commit());
            }
        }
    }

    async fn attempt(&mut self, work: &mut dyn Work, waits: bool) -> Result<(), Unfinished> {
        let wanted = work.wanted();
        let mut facts = self.begin(&wanted, waits).await.map_err(Unfinished::from_open)?;
        if let Some(more) = work.more() {
            let read = self.lock_and_read(&more, &self.statements.lock_free);
            let found = self.answered(read).await.map_err(Unfinished::from_open)?;
            facts.add(&wanted, &more, found);
        }
        let changes = work.decide(&mut facts).map_err(|failure| Unfinished::Open(Trouble::Decided(failure)))?;
        if changes.entries.is_empty() && !changes.repeats {
            return self.rollback().await.map_err(Unfinished::Undone);
        }
        let start = Instant::now();
        self.write_and_commit(&changes).await?;
        self.batch += 1;
        self.target.pulse.beat();
        self.metrics.committed(changes.entries.len(), start.elapsed());
        self.shown.publish(&changes, facts.take_drawn());
        Ok(())
    }

    /// The first round trip.
    async fn begin(&self, wanted: &Wanted, waits: bool) -> Result<Found, Trouble> {
        let (client, statements) = (&self.link.client, &self.statements);
        let batch = self.batch + 1;
        let (lock, is_partial) = match wanted {
            Wanted::Named { waits: true, .. } if waits => (&statements.lock, false),
            Wanted::Named { .. } => (&statements.lock_free, true),
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
            let (begun, counted, found, there) = trip.await;
            begun?;
            let is_counted = counted? == 1;
            let found = found?.with_locked(&there?)?;
            if is_counted { Ok(found) } else { Err(Trouble::Ended) }
        })
        .await
    }

    /// Waits for an answer until the primary has been silent for too long on all connections.
    async fn answered<T>(&self, answer: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        match timed(self.target.pulse.wait(), answer).await {
            Ok(answer) => {
                self.target.pulse.beat();
                Ok(answer)
            }
            Err(Trouble::Silent(_)) => Err(Trouble::Silent(self.target.timeout)),
            Err(trouble) => Err(trouble),
        }
    }

    /// Reads the wanted facts; the statement `lock` locks and reads books.
    async fn lock_and_read(&self, wanted: &Wanted, lock: &Statement) -> Result<Found, Trouble> {
        let (client, statements) = (&self.link.client, &self.statements);
        let (keys, entries): (Vec<&[u8]>, usize) = match wanted {
            Wanted::Named { keys, entries, .. } => (keys.iter().map(IdempotencyKey::as_bytes).collect(), *entries),
            Wanted::Below { most, .. } => (Vec::new(), *most),
        };
        let values = (to_i64(entries) + NUMBERS_A_VALUE - 1) / NUMBERS_A_VALUE;
        // Sent together, executed in this order.
        let (books, earlier, numbers) = join3(
            async {
                match wanted {
                    Wanted::Named { books, .. } => client.query(lock, &[&ids(books)]).await,
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
        )
        .await;
        Found::new(wanted, &books?, &earlier?, &numbers?)
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
        for entry in entries {
            columns.push(entry);
        }
        let Columns { numbers, times, kinds, books, quantities, befores, afters, keys, owners } = &columns;
        let trip = Box::pin(join3(
            async {
                if !ids.is_empty() {
                    client.query_one(&statements.change, &[&ids, &stocks.0, &stocks.1, &prices.0, &prices.1]).await?;
                }
                Ok(())
            },
            async {
                if !numbers.is_empty() {
                    let values: [&(dyn ToSql + Sync); 9] =
                        [numbers, times, kinds, books, quantities, befores, afters, keys, owners];
                    client.execute(&statements.append, &values).await?;
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
            let committed = self.link.said.durably(commit).await;
            Ok((written, committed))
        };
        let (written, committed) =
            timed(self.settings.database_timeout, committed).await.map_err(Unfinished::Unknown)?;
        written.map_err(Unfinished::from_writing)?;
        committed.map_err(Unfinished::Unknown)
    }

    async fn rollback(&self) -> Result<(), Trouble> {
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
    Open(Trouble),
    /// It was rolled back.
    Undone(Trouble),
    /// Its outcome is unknown.
    Unknown(Trouble),
}

impl Unfinished {
    /// For errors after COMMIT was sent. An error reply fails the transaction, and COMMIT then rolls it back; after a
    /// lost connection the outcome is unknown.
    fn from_writing(error: Error) -> Self {
        let trouble = Trouble::from(error);
        if trouble.is_refusal() { Self::Undone(trouble) } else { Self::Unknown(trouble) }
    }

    /// For errors before any write: a lost connection rolls the transaction back.
    fn from_open(trouble: Trouble) -> Self {
        if trouble.is_refusal() { Self::Open(trouble) } else { Self::Undone(trouble) }
    }
}

impl Session for PostgresSession<'_> {
    fn transact(&mut self, work: &mut dyn Work) -> Result<(), Failure> {
        let runtime = self.runtime;
        runtime.block_on(self.run(work))
    }

    /// Nothing to do: each transaction reads its facts anew.
    fn read_back(&mut self) -> Result<(), Broken> {
        Ok(())
    }

    /// Ends the attempt's session. A transaction of it that is still under way holds the session's row, so this waits
    /// for its end; one that has not begun on the server yet can no longer be committed, because its session has ended.
    /// This is a write as well and waits for the replicas, so its result is as durable as any commit.
    fn settle(&mut self, attempt: &Attempt) -> Result<bool, Broken> {
        let client = &self.link.client;
        let lock_timeout = |wait: Duration| format!("SET lock_timeout = {}", wait.as_millis());
        let sql = "UPDATE ledger_session SET ended = true WHERE id = $1 RETURNING batch";
        let ended = async {
            client.batch_execute(&lock_timeout(self.settings.busy_timeout)).await?;
            let row = self.link.said.durably(client.query_opt(sql, &[&attempt.session])).await?;
            client.batch_execute(&lock_timeout(lock_wait(self.settings))).await?;
            Ok(row)
        };
        let row: Option<Row> = self.runtime.block_on(timed(self.settings.database_timeout, ended))?;
        let last: i64 = row.map_or(Ok(0), |row| row.try_get(0)).map_err(Trouble::from)?;
        Ok(last >= attempt.batch)
    }

    fn tend(&mut self, is_idle: bool) -> Result<(), Broken> {
        if !is_idle {
            return Ok(());
        }
        self.runtime.block_on(async {
            // Lets the connection notice that it was closed.
            tokio::time::sleep(Duration::ZERO).await;
            if self.link.client.is_closed() {
                return self.renew().await;
            }
            if self.target.pulse.is_due() {
                self.answered(async { Ok(self.link.client.batch_execute("").await?) }).await?;
            }
            Ok(())
        })?;
        Ok(())
    }
}
