//! Follows the log for readers: applies other servers' notifications, reads unannounced entries, and determines up to
//! which number the log is final.
//!
//! Transactions draw numbers in one order and commit in another, so an entry can appear below one already seen. A
//! transaction gets its id before it draws numbers. So the follower reads the newest number drawn and then takes an id
//! itself: every number up to that one belongs to a transaction with a lower id. Once no running transaction has a
//! lower id, all of them have ended: no entry up to this [`Bound`] can appear any more.
//!
//! A server announces each commit right after it: the state of the books, and the numbers that the transaction drew. A
//! number not announced in time was drawn by a transaction that was rolled back, by another program, or by a server
//! that has died. The log is read only if it has an entry with such a number.

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures_util::{TryStreamExt as _, future::join};
use tokio::{select, time::sleep};
use tokio_postgres::{Notification, Row, Statement};

use super::{
    announcements::Announcement,
    errors::PostgresError,
    link::{Link, connect, reconnect_pause, timed},
    notify::Notifier,
    rows::{BOOK_COLUMNS, book, book_id},
    schema::{CHANNEL, NUMBERS_A_VALUE},
    target::{Pulse, Target},
    visible::{Version, Visible},
};

/// Least time between two checks, so that busy servers do not overload each other with notifications.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// Time from seeing that numbers were drawn to searching the log for unannounced ones. Together with the default of
/// `follow_interval`, after which they are seen, it is less than the 100 ms within which a purchase must be visible.
const ANNOUNCED_WITHIN: Duration = Duration::from_millis(40);

/// Most bounds kept while a transaction holds up the horizon. Beyond, every other one is dropped: a later bound does as
/// well.
const BOUNDS_MAX: usize = 1000;

/// Longest wait of a start for running transactions.
const START: Duration = Duration::from_secs(2);

/// The newest number drawn, if above a given one, and then an id for this transaction. A snapshot's own `xmax` would
/// not do: it is the first id after those that have ended, and transactions with higher ids may run.
const BOUND: &str = "SELECT drawn, pg_current_xact_id()::text::bigint \
    FROM (SELECT last_value + CASE WHEN is_called THEN $2::bigint - 1 ELSE -1 END AS drawn FROM entry_number) s \
    WHERE drawn > $1";

/// All transactions with ids below this one have ended.
const ENDED: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";

/// True if one of these ranges of numbers has an entry. LIMIT makes each range a separate look-up: as a join, the plan
/// may read the whole log.
const UNANNOUNCED: &str = "SELECT EXISTS (SELECT FROM unnest($1::bigint[], $2::bigint[]) AS gap(first, last), \
    LATERAL (SELECT FROM entry WHERE number BETWEEN first AND last LIMIT 1) found)";

/// The current state of the books that entries above a number concern.
const TOUCHED: &str = "SELECT t.number, t.book_id, b.id, b.title, b.topic, b.stock, b.price_cents, b.listed, b.held \
    FROM (SELECT book_id, max(number) AS number FROM entry WHERE number > $1 GROUP BY book_id) t \
    LEFT JOIN book b ON b.id = t.book_id";

const NEWEST: &str = "SELECT coalesce(max(number), 0) FROM entry WHERE number <= $1";

/// Replicas of the primary; no row for a user who may not see their states.
const REPLICAS: &str = "SELECT count(*) FROM pg_stat_replication \
    WHERE state = 'streaming' AND application_name <> 'pg_basebackup' HAVING pg_has_role('pg_read_all_stats', 'USAGE')";

/// Time between two counts of them.
const REPLICAS_PAUSE: Duration = Duration::from_secs(10);

/// A number up to which nothing is missing once all transactions with lower ids have ended.
#[derive(Clone, Copy, Debug)]
struct Bound {
    last: i64,
    id: i64,
    taken: Instant,
}

impl Bound {
    fn new(row: &Row) -> Result<Self, PostgresError> {
        Ok(Self { last: row.try_get(0)?, id: row.try_get(1)?, taken: Instant::now() })
    }

    fn is_passed(&self, ended: i64) -> bool {
        self.id <= ended
    }
}

/// A connection that follows the log.
pub(super) struct Follower {
    link: Arc<Link>,
    visible: Arc<Visible>,
    pulse: Arc<Pulse>,
    timeout: Duration,
    bound: Statement,
    ended: Statement,
    unannounced: Statement,
    touched: Statement,
    newest: Statement,
    notifier: Notifier,
    /// Bounds above the horizon, in order.
    bounds: VecDeque<Bound>,
    /// Once this is passed, all books must be reloaded.
    reload_at: Option<Bound>,
    /// Horizon up to which this connection has published the newest entry; another may have ended before doing so.
    published: i64,
    /// Time at which replicas were counted.
    counted_at: Option<Instant>,
}

impl Follower {
    /// Starts following and publishes the current catalogue.
    async fn start(link: Arc<Link>, visible: Arc<Visible>, target: &Target) -> Result<Self, PostgresError> {
        let (pulse, timeout) = (Arc::clone(&target.pulse), target.timeout);
        let client = &link.client;
        // This connection only announces commits that are already durable.
        client.batch_execute("SET synchronous_commit = off").await?;
        let notifier = Notifier::new(Arc::clone(&link), Arc::clone(&visible), timeout).await?;
        let process: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        link.notices.process.store(process, Relaxed);
        let (view, channel) = (Arc::clone(&visible), Arc::clone(&notifier.channel));
        let on_notification = move |note: &Notification| match Announcement::read(note.payload())
            .filter(|_| note.channel() == &*channel)
        {
            Some(announcement) => view.announced(&announcement),
            None => view.set_unannounced(),
        };
        // Notifications arrive only after this.
        let _ = link.notices.on_notification.set(Box::new(on_notification));
        client.batch_execute(&format!("LISTEN {CHANNEL}; LISTEN {}", notifier.channel)).await?;
        let (bound, ended, unannounced) =
            (client.prepare(BOUND).await?, client.prepare(ENDED).await?, client.prepare(UNANNOUNCED).await?);
        let (touched, newest) = (client.prepare(TOUCHED).await?, client.prepare(NEWEST).await?);
        let mut follower = Self {
            link,
            visible,
            pulse,
            timeout,
            bound,
            ended,
            unannounced,
            touched,
            newest,
            notifier,
            bounds: VecDeque::new(),
            reload_at: None,
            published: -1,
            counted_at: None,
        };
        follower.load().await?;
        follower.look().await?;
        Ok(follower)
    }

    /// Reads all books, with a number below which nothing is missing.
    async fn load(&mut self) -> Result<(), PostgresError> {
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
        let mut books = Vec::new();
        while let Some(row) = rows.try_next().await? {
            books.push(book(&row, 0)?);
        }
        self.visible.replace(books, first.last);
        self.bounds.clear();
        Ok(())
    }

    /// Applies the commits since the last check.
    async fn look(&mut self) -> Result<(), PostgresError> {
        let began = Instant::now();
        let client = &self.link.client;
        let known = self.bounds.back().map_or_else(|| self.visible.horizon(), |bound| bound.last);
        let trip = join(
            async { client.query_opt(&self.bound, &[&known, &NUMBERS_A_VALUE]).await },
            client.query_one(&self.ended, &[]),
        );
        let read = timed(self.timeout, async {
            let (bound, ended) = trip.await;
            Ok((bound?, ended?.try_get::<_, i64>(0)?))
        });
        let (next, ended) = read.await?;
        self.pulse.beat();
        self.bounds.extend(next.as_ref().map(Bound::new).transpose()?);
        thin(&mut self.bounds);
        let passed = self.last_bound(|bound| bound.is_passed(ended));
        let due = self.last_bound(|bound| bound.taken.elapsed() >= ANNOUNCED_WITHIN);
        let is_read = timed(self.timeout, self.read_unannounced(due)).await?;
        let horizon = self.visible.pass(passed, if is_read { passed } else { due });
        while self.bounds.pop_front_if(|bound| bound.last <= horizon).is_some() {}
        self.visible.set_current(began);
        // While an earlier entry may still appear, the newest number must not advance past it.
        if horizon > self.published && self.reload_at.is_none() {
            let newest = async { Ok(self.link.client.query_one(&self.newest, &[&horizon]).await?) };
            let newest: i64 = timed(self.timeout, newest).await?.try_get(0)?;
            self.visible.newest().send_if_modified(|visible| std::mem::replace(visible, newest) != newest);
            self.published = horizon;
        }
        if self.reload_at.take_if(|bound| bound.is_passed(ended)).is_some() {
            self.load().await?;
        }
        if self.counted_at.is_none_or(|counted_at| counted_at.elapsed() >= REPLICAS_PAUSE) {
            let count = timed(self.timeout, async { Ok(self.link.client.query_opt(REPLICAS, &[]).await?) }).await;
            // Without the count, readers are served all the same.
            self.visible.set_replicas(count.ok().flatten().and_then(|row| row.try_get(0).ok()));
            self.counted_at = Some(Instant::now());
        }
        Ok(())
    }

    /// The last number of the leading bounds for which this holds.
    fn last_bound(&self, holds: impl Fn(&Bound) -> bool) -> i64 {
        let count = self.bounds.partition_point(holds);
        count.checked_sub(1).and_then(|index| self.bounds.get(index)).map_or(0, |bound| bound.last)
    }

    /// Reads the log, if it has unannounced entries: by another program, or with numbers up to `due`.
    async fn read_unannounced(&self, due: i64) -> Result<bool, PostgresError> {
        let (client, lacking) = (&self.link.client, self.visible.lacking(due));
        let mut is_unannounced = lacking.is_unannounced;
        if !is_unannounced && !lacking.gaps.is_empty() {
            let (first, last): (Vec<i64>, Vec<i64>) = lacking.gaps.into_iter().map(RangeInclusive::into_inner).unzip();
            is_unannounced = client.query_one(&self.unannounced, &[&first, &last]).await?.try_get(0)?;
        }
        if is_unannounced {
            let touched = client.query(&self.touched, &[&lacking.horizon]).await?;
            self.visible.apply(touched.iter().map(version).collect::<Result<_, _>>()?);
        }
        Ok(is_unannounced)
    }

    /// Checks and announces repeatedly, until the connection fails.
    async fn follow(&mut self, interval: Duration) -> PostgresError {
        let notifier = self.notifier.clone();
        select! {
            error = notifier.run() => error,
            error = self.look_on(interval) => error,
        }
    }

    async fn look_on(&mut self, interval: Duration) -> PostgresError {
        loop {
            let pause = if self.bounds.is_empty() { interval } else { ANNOUNCED_WITHIN.min(interval) };
            select! {
                () = self.link.notices.changed.notified() => {}
                () = sleep(pause.saturating_sub(PAUSE_MIN)) => {}
            }
            if let Err(error) = self.look().await {
                return error;
            }
            sleep(PAUSE_MIN).await;
        }
    }
}

fn thin(bounds: &mut VecDeque<Bound>) {
    if bounds.len() > BOUNDS_MAX {
        let mut is_kept = false;
        bounds.retain(|_| {
            is_kept = !is_kept;
            is_kept
        });
    }
}

fn version(row: &Row) -> Result<Version, PostgresError> {
    let there: Option<i32> = row.try_get(2)?;
    let state = there.map(|_| book(row, 2)).transpose()?;
    Ok((book_id(row.try_get(1)?)?, row.try_get(0)?, state))
}

/// Follows forever, with one connection after the other.
pub(super) async fn follow(
    mut first: Option<Follower>,
    target: Arc<Target>,
    visible: Arc<Visible>,
    interval: Duration,
) {
    let mut is_lost = false;
    loop {
        let error = match first.take() {
            Some(mut follower) => Some(follower.follow(interval).await),
            None => match start(&target, &visible).await {
                Ok(follower) => {
                    tracing::info!(store = %target.name, "reads follow the database again");
                    is_lost = false;
                    first = Some(follower);
                    None
                }
                Err(error) => Some(error),
            },
        };
        if let Some(error) = error {
            if !is_lost {
                tracing::warn!(reason = error.reason(), store = %target.name, "reads do not follow the database");
            }
            is_lost = true;
            visible.set_replicas(None);
            sleep(reconnect_pause()).await;
        }
    }
}

/// Connects and publishes the catalogue.
pub(super) async fn start(target: &Target, visible: &Arc<Visible>) -> Result<Follower, PostgresError> {
    Follower::start(Arc::new(connect(target).await?), Arc::clone(visible), target).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_are_never_passed_stay_few_and_the_oldest_is_among_them() {
        let mut bounds = VecDeque::new();
        for last in 1..=100_000 {
            bounds.push_back(Bound { last, id: last, taken: Instant::now() });
            thin(&mut bounds);
            assert!(bounds.len() <= BOUNDS_MAX);
        }
        assert_eq!(bounds.front().map(|bound| bound.last), Some(1));
        assert!(bounds.iter().is_sorted_by_key(|bound| bound.last));
        assert!(bounds.back().is_some_and(|bound| bound.last > 90_000));
    }
}
