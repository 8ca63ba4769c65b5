//! The ledger: decides sales, restocks and prices, and acknowledges them once on disk.
//!
//! Waiting jobs are committed together in one transaction ([`commit`]), as `transaction` shows. With
//! [`CommitMode::Each`] several workers take one job at a time. All of this runs on the workers' threads; a caller only
//! awaits the answer.

mod rules;
mod transaction;
mod worker;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use commit::{Failure, Group, GroupLimits};
use tokio::sync::watch;

pub(crate) use self::rules::{Change, Write, Written};
use self::{
    rules::{Decision, Job},
    worker::{LedgerWorker, Shared},
};
use crate::{
    domain::{Actor, BookId, Hold, HoldEnd, PriceChange, Purchase, Raised, Receipt, Reservation, Restocked},
    fault::{Fault, Limit, Unavailable},
    metrics::Metrics,
    money::Cents,
    settings::{CommitMode, Settings},
    store::Store,
};

/// Handle; closing or dropping it ends the workers after the queued jobs.
pub struct Ledger {
    shared: Arc<Shared>,
    group: Group<LedgerWorker>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("store", &self.shared.store).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Starts the workers.
    pub(crate) fn start(store: Arc<dyn Store>, settings: Settings, metrics: Arc<Metrics>) -> io::Result<Self> {
        let (workers, batch) = match settings.commit {
            CommitMode::Group => (1, settings.batch_max.max(1)),
            CommitMode::Each => (settings.write_pool.max(1), 1),
        };
        let limits = GroupLimits {
            queued: settings.limits.purchases_queued,
            batch,
            idle: settings.poll_interval,
            ..GroupLimits::default()
        };
        let shared =
            Arc::new(Shared { store, settings, metrics, trouble: Mutex::default(), aside: AtomicUsize::new(0) });
        let stores = (0..workers).map(|_| LedgerWorker::new(Arc::clone(&shared)));
        Ok(Self { group: Group::start("ledger", limits, stores)?, shared })
    }

    /// Buys; the answered purchase is on disk.
    pub async fn purchase(&self, purchase: Purchase) -> Result<Receipt, Fault> {
        match self.commit(Job::Purchase(purchase)).await? {
            Decision::Purchase(receipt) => Ok(receipt),
            _ => Err(Fault::OutcomeUnknown),
        }
    }

    /// Holds copies; those of an answered reservation are held on disk.
    pub async fn hold(&self, hold: Hold) -> Result<Reservation, Fault> {
        self.reservation(Job::Hold(hold)).await
    }

    /// Ends a reservation.
    pub async fn end_hold(&self, end: HoldEnd) -> Result<Reservation, Fault> {
        self.reservation(Job::EndHold(end)).await
    }

    async fn reservation(&self, job: Job) -> Result<Reservation, Fault> {
        match self.commit(job).await? {
            Decision::Reservation(reservation) => Ok(reservation),
            _ => Err(Fault::OutcomeUnknown),
        }
    }

    /// Sets a book's price; `None` if the book does not exist.
    pub async fn set_price(&self, book: BookId, price: Cents, actor: Actor) -> Result<Option<PriceChange>, Fault> {
        match self.commit(Job::SetPrice(book, price, actor)).await? {
            Decision::Price(change) => Ok(change),
            _ => Err(Fault::OutcomeUnknown),
        }
    }

    /// Raises a book with fewer copies to `amount`; `None` if the book does not exist.
    pub async fn restock_book(&self, book: BookId, amount: u32, actor: Actor) -> Result<Option<Raised>, Fault> {
        match self.commit(Job::RestockBook(book, amount, actor)).await? {
            Decision::Raised(raised) => Ok(raised),
            _ => Err(Fault::OutcomeUnknown),
        }
    }

    /// Adds and changes whole books in one transaction.
    pub(crate) async fn write(&self, writes: Vec<Write>, actor: Actor) -> Result<Vec<Written>, Fault> {
        match self.commit(Job::Write(writes, actor)).await? {
            Decision::Written(written) => Ok(written),
            _ => Err(Fault::OutcomeUnknown),
        }
    }

    /// Raises every listed book with fewer copies to `amount`, a slice of books per transaction: after a crash in between some
    /// are raised and logged, and a retry does the rest.
    pub async fn restock(&self, amount: u32, actor: Actor) -> Result<Restocked, Fault> {
        match self.commit(Job::Restock(amount, actor)).await? {
            Decision::Restocked(done) => Ok(done),
            _ => Err(Fault::OutcomeUnknown),
        }
    }

    fn commit(&self, job: Job) -> impl Future<Output = Result<Decision, Fault>> {
        let answer = self.group.commit(job);
        async move { answer.await.unwrap_or_else(|failure| Err(self.fault(failure))) }
    }

    fn fault(&self, failure: Failure) -> Fault {
        match failure {
            Failure::Full => {
                let at = self.shared.settings.limits.purchases_queued;
                self.shared.metrics.refused(Limit::PurchasesQueued);
                Fault::Limit { limit: Limit::PurchasesQueued, at: u64::try_from(at).unwrap_or(u64::MAX) }
            }
            Failure::Overloaded { retry_after } => {
                self.shared.metrics.refused(Limit::PurchasesQueued);
                Fault::Overloaded { retry_after }
            }
            Failure::Late => Fault::Late,
            Failure::Recovering => Fault::Unavailable(self.shared.store.while_failed()),
            Failure::Closing => Fault::Unavailable(Unavailable::Closing),
            Failure::OutcomeUnknown => Fault::OutcomeUnknown,
        }
    }

    /// The newest entry number below which the log is final, to watch for newer ones.
    pub fn watch(&self) -> watch::Receiver<i64> {
        self.shared.store.newest()
    }

    /// True while purchases are accepted: false from a failure until the store has been read back.
    pub fn healthy(&self) -> watch::Receiver<bool> {
        self.group.healthy()
    }

    /// Reason why purchases are not accepted, for operators; `None` while they are.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of waiting jobs.
    pub fn queued(&self) -> usize {
        self.group.queued() + self.shared.aside.load(Relaxed)
    }

    /// Commits queued jobs and closes the store. False if that takes longer than `timeout`; everything acknowledged is
    /// on disk even then. Blocks.
    pub fn close(&self, timeout: Duration) -> bool {
        self.group.close(timeout)
    }
}
