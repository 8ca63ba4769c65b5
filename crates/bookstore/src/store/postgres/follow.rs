//! Follows the log for readers: takes over what all servers commit, and finds out up to which number the log is final.
//! Must not know what an entry means.
//!
//! Transactions draw numbers in one order and commit in another, so an entry can appear below one that was seen. A
//! transaction has its id before it draws numbers. So the follower reads the newest number drawn and then takes an id
//! itself: every number up to that one belongs to a transaction with a lower id. When the oldest transaction that runs
//! has no lower id, all of them have ended. Up to the [`Bound`] that has been passed no entry is missing; above it all
//! entries are read again each time.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures_util::{TryStreamExt as _, future::join3};
use tokio::{select, time::sleep};
use tokio_postgres::{Row, Statement};

use super::{
    link::{Link, connect, timed},
    rows::{BOOK_COLUMNS, book, book_id},
    schema::{CHANNEL, NUMBERS_A_VALUE},
    shown::{Shown, Version},
    target::Target,
    trouble::Trouble,
};
use crate::domain::NewBook;

/// The least time between two looks, so that busy servers do not keep each other busy with news.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// Between two tries to connect; see [`jitter`].
pub(super) const RECONNECT: Duration = Duration::from_millis(250);

/// How long a start waits for transactions that are under way.
const START: Duration = Duration::from_secs(2);

/// The newest number that was drawn, if it is above a number, and then an id for this transaction. A snapshot's own `xmax`
/// would not do: it is the first id after those that have ended, and transactions with higher ids may run.
const BOUND: &str = "SELECT drawn, pg_current_xact_id()::text::bigint \
    FROM (SELECT last_value + CASE WHEN is_called THEN $2::bigint - 1 ELSE -1 END AS drawn FROM entry_number) s \
    WHERE drawn > $1";

/// All transactions with ids below this one have ended.
const ENDED: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";

/// The books that entries above a number touch, as they are now.
const TOUCHED: &str = "SELECT t.number, t.book_id, b.id, b.title, b.topic, b.stock, b.price_cents \
    FROM (SELECT book_id, max(number) AS number FROM entry WHERE number > $1 GROUP BY book_id) t \
    LEFT JOIN book b ON b.id = t.book_id";

const NEWEST: &str = "SELECT coalesce(max(number), 0) FROM entry WHERE number <= $1";

/// A number up to which nothing is missing once all transactions with lower ids have ended.
#[derive(Clone, Copy, Debug)]
struct Bound {
    last: i64,
    id: i64,
}

impl Bound {
    fn new(row: &Row) -> Result<Self, Trouble> {
        Ok(Self { last: row.try_get(0)?, id: row.try_get(1)? })
    }

    fn is_passed(&self, ended: i64) -> bool {
        self.id <= ended
    }
}

/// A connection that follows the log.
pub(super) struct Follower {
    link: Link,
    shown: Arc<Shown>,
    timeout: Duration,
    bound: Statement,
    ended: Statement,
    touched: Statement,
    newest: Statement,
    /// In order; those that have not been passed.
    bounds: VecDeque<Bound>,
    /// All books must be read again when this is passed.
    reload_at: Option<Bound>,
    /// Up to where this connection has told what the newest entry is; another may have ended before it did.
    told: i64,
}

impl Follower {
    /// Shows the catalogue as it is.
    pub(super) async fn start(link: Link, shown: Arc<Shown>, timeout: Duration) -> Result<Self, Trouble> {
        let client = &link.client;
        // It announces what others have made durable.
        client.batch_execute(&format!("SET synchronous_commit = off; LISTEN {CHANNEL}")).await?;
        let process: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        link.said.process.store(process, Relaxed);
        let [bound, ended, touched, newest] = [
            client.prepare(BOUND).await?,
            client.prepare(ENDED).await?,
            client.prepare(TOUCHED).await?,
            client.prepare(NEWEST).await?,
        ];
        let bounds = VecDeque::new();
        let mut follower =
            Self { link, shown, timeout, bound, ended, touched, newest, bounds, reload_at: None, told: -1 };
        follower.load().await?;
        follower.look().await?;
        Ok(follower)
    }

    /// Reads all books, from a number on below which nothing is missing.
    async fn load(&mut self) -> Result<(), Trouble> {
        let client = &self.link.client;
        let begun = Instant::now();
        let first = Bound::new(&client.query_one(&self.bound, &[&-1_i64, &NUMBERS_A_VALUE]).await?)?;
        let mut ended: i64 = client.query_one(&self.ended, &[]).await?.try_get(0)?;
        while !first.is_passed(ended) && begun.elapsed() < START {
            sleep(PAUSE_MIN).await;
            ended = client.query_one(&self.ended, &[]).await?.try_get(0)?;
        }
        if !first.is_passed(ended) {
            tracing::warn!(
                "a transaction that writes has been open for a while; until it ends, readers may miss its books"
            );
            self.reload_at = Some(first);
        }
        let sql = format!("SELECT {BOOK_COLUMNS} FROM book ORDER BY id");
        let mut rows = pin!(client.query_raw(&sql, Vec::<i32>::new()).await?);
        let mut books: Vec<NewBook> = Vec::new();
        while let Some(row) = rows.try_next().await? {
            books.push(book(&row, 0)?);
        }
        self.shown.replace(books, first.last);
        self.bounds.clear();
        Ok(())
    }

    /// Takes over what was committed since it last looked.
    async fn look(&mut self) -> Result<(), Trouble> {
        let began = Instant::now();
        let horizon = self.shown.horizon();
        let client = &self.link.client;
        let known = self.bounds.back().map_or(horizon, |bound| bound.last);
        let trip = join3(
            async { client.query_opt(&self.bound, &[&known, &NUMBERS_A_VALUE]).await },
            client.query_one(&self.ended, &[]),
            async { client.query(&self.touched, &[&horizon]).await },
        );
        let read = timed(self.timeout, async {
            let (bound, ended, touched) = trip.await;
            Ok((bound?, ended?.try_get::<_, i64>(0)?, touched?))
        });
        let (next, ended, touched) = read.await?;
        self.bounds.extend(next.as_ref().map(Bound::new).transpose()?);
        let mut passed = horizon;
        while let Some(bound) = self.bounds.front().filter(|bound| bound.is_passed(ended)) {
            passed = bound.last.max(passed);
            self.bounds.pop_front();
        }
        let versions: Result<Vec<Version>, Trouble> = touched.iter().map(version).collect();
        self.shown.apply(versions?, passed);
        self.shown.set_current(began);
        // While an earlier entry may still come, no one may go on behind it.
        if passed > self.told && self.reload_at.is_none() {
            let newest = async { Ok(self.link.client.query_one(&self.newest, &[&passed]).await?) };
            let newest: i64 = timed(self.timeout, newest).await?.try_get(0)?;
            self.shown.newest().send_if_modified(|shown| std::mem::replace(shown, newest) != newest);
            self.told = passed;
        }
        if self.reload_at.take_if(|bound| bound.is_passed(ended)).is_some() {
            self.load().await?;
        }
        Ok(())
    }

    /// Looks again and again, until the connection fails.
    async fn follow(&mut self, interval: Duration) -> Result<(), Trouble> {
        loop {
            select! {
                () = self.shown.committed.notified() => {
                    // After the commit and in a transaction by itself: NOTIFY holds a lock of the whole database until
                    // its transaction has ended.
                    let note = async { Ok(self.link.client.batch_execute(&format!("NOTIFY {CHANNEL}")).await?) };
                    timed(self.timeout, note).await?;
                }
                () = self.link.said.changed.notified() => {}
                () = sleep(interval) => {}
            }
            self.look().await?;
            sleep(PAUSE_MIN).await;
        }
    }
}

fn version(row: &Row) -> Result<Version, Trouble> {
    let there: Option<i32> = row.try_get(2)?;
    let state = there.map(|_| book(row, 2)).transpose()?;
    Ok((book_id(row.try_get(1)?)?, row.try_get(0)?, state))
}

/// Follows for ever, with connections one after the other.
pub(super) async fn follow(mut first: Option<Follower>, target: Arc<Target>, shown: Arc<Shown>, interval: Duration) {
    let mut is_lost = false;
    loop {
        let trouble = match first.take() {
            Some(mut follower) => follower.follow(interval).await.err(),
            None => match start(&target, &shown).await {
                Ok(follower) => {
                    tracing::info!(store = %target.name, "reads follow the database again");
                    is_lost = false;
                    first = Some(follower);
                    None
                }
                Err(trouble) => Some(trouble),
            },
        };
        if let Some(trouble) = trouble {
            if !is_lost {
                tracing::warn!(reason = trouble.reason(), store = %target.name, "reads do not follow the database");
            }
            is_lost = true;
            sleep(jitter(RECONNECT)).await;
        }
    }
}

/// Connects and shows the catalogue.
pub(super) async fn start(target: &Target, shown: &Arc<Shown>) -> Result<Follower, Trouble> {
    Follower::start(connect(target).await?, Arc::clone(shown), target.timeout).await
}

/// Half of `time` to one and a half, so that many servers do not come back at once.
pub(super) fn jitter(time: Duration) -> Duration {
    time.mul_f64(0.5 + f64::from(fastrand::u16(..)) / f64::from(u16::MAX))
}
