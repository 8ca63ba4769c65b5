//! The path of a purchase through the store: a transaction reads the facts that its batch wants, the rules decide, and
//! the changes are committed, published and acknowledged.

use std::{collections::BTreeSet, mem};

use commit::{Batches, Worker};

use super::rules::{Decision, Job, JobResult, PendingJob, Rules, Write, Written};
use crate::{
    domain::{Actor, BookId},
    metrics::Metrics,
    store::{Facts, LedgerConnection, TransactionError, Wanted},
};

/// Purchases, and operators' changes of stocks and prices, that share a transaction.
pub(super) struct Sale {
    pub(super) jobs: Vec<PendingJob>,
    /// Result of each job; `None` if its caller gave up.
    pub(super) results: Vec<Option<JobResult>>,
    /// Jobs for books that stayed locked, with these.
    pub(super) locked: Vec<(BookId, PendingJob)>,
    /// True to wait for books that others have locked.
    waits: bool,
    /// True to take more jobs along that arrive during such a wait.
    grows: bool,
}

impl Sale {
    pub(super) fn new(jobs: Vec<PendingJob>, waits: bool, grows: bool) -> Self {
        Self { jobs, results: Vec::new(), locked: Vec::new(), waits, grows }
    }

    /// Sells: reads, decides, commits, publishes and answers.
    pub(super) fn carry_out(
        &mut self,
        connection: &mut dyn LedgerConnection,
        batches: &mut Batches<'_, impl Worker<Job = Job, Answer = JobResult>>,
        metrics: &Metrics,
    ) -> Result<(), TransactionError> {
        let mut transaction = connection.begin()?;
        until_first(|| {
            let wanted = wanted(&self.jobs, self.waits);
            let mut facts = transaction.read(&wanted)?;
            if let Some(more) = self.take_more(batches) {
                transaction.read_more(&wanted, &more, &mut facts)?;
            }
            self.set_aside(&facts, batches);
            let mut rules = Rules::new(&mut facts);
            // A caller may have given up while the worker waited for a lock of the store.
            let decide = |pending: &PendingJob| if pending.is_abandoned() { None } else { rules.decide(&pending.job) };
            self.results = self.jobs.iter().map(decide).collect();
            let changes = rules.into_changes();
            transaction.commit(&changes)?;
            transaction.publish(&changes);
            Ok(())
        })?;
        drop(transaction);
        count(metrics, self.results.iter().flatten());
        for (job, result) in self.jobs.drain(..).zip(mem::take(&mut self.results)) {
            if let Some(result) = result {
                batches.answer(job, result);
            }
        }
        Ok(())
    }

    /// Takes along jobs that have arrived while another server held a book; returns the facts that they want. If they at
    /// least double the batch, this halves the number of transactions and of waits for others; fewer are not worth
    /// another round trip.
    fn take_more(&mut self, batches: &Batches<'_, impl Worker<Job = Job, Answer = JobResult>>) -> Option<Wanted> {
        let before = self.jobs.len();
        if !self.grows || batches.queued() < before {
            return None;
        }
        batches.extend(&mut self.jobs);
        // Their books are not known yet.
        let is_later = |pending: &mut PendingJob| matches!(pending.job, Job::EndHold(..));
        batches.put_back(self.jobs.extract_if(before.., is_later).collect());
        self.jobs.get(before..).filter(|taken| !taken.is_empty()).map(|taken| wanted(taken, false))
    }

    /// Removes the jobs for books that are locked; those that came along go back to the queue.
    fn set_aside(&mut self, facts: &Facts, batches: &Batches<'_, impl Worker<Job = Job, Answer = JobResult>>) {
        let book = |job: &Job| match job {
            Job::EndHold(end) => facts.with_key(&end.key).map(|reserved| reserved.book),
            job => job.book(),
        };
        let is_locked = |pending: &mut PendingJob| book(&pending.job).is_some_and(|book| facts.is_locked(book));
        if facts.has_locked() {
            let locked = self.jobs.extract_if(.., is_locked);
            self.locked.extend(locked.filter_map(|pending| Some((book(&pending.job)?, pending))));
        }
        let is_left_out = |job: &Job| job.book().is_some_and(|book| facts.is_left_out(book));
        let is_later = |pending: &mut PendingJob| !pending.job.is_shared() || is_left_out(&pending.job);
        batches.put_back(self.jobs.extract_if(.., is_later).collect());
    }
}

/// Raises a slice of at most `most` books with fewer copies to `amount`. Returns their number, and where to continue if
/// there may be more.
pub(super) fn restock_slice(
    connection: &mut dyn LedgerConnection,
    (amount, actor): (u32, &Actor),
    after: Option<BookId>,
    most: usize,
) -> Result<(usize, Option<BookId>), TransactionError> {
    let mut transaction = connection.begin()?;
    until_first(|| {
        let mut facts = transaction.read(&Wanted::Below { amount, after, most })?;
        let mut rules = Rules::new(&mut facts);
        let raised = rules.raise_below(amount, actor);
        let changes = rules.into_changes();
        transaction.commit(&changes)?;
        transaction.publish(&changes);
        Ok(raised)
    })
}

/// Carries out an operator's writes of whole books in one transaction; fills `written` before the commit.
pub(super) fn write_books(
    connection: &mut dyn LedgerConnection,
    writes: &[Write],
    actor: &Actor,
    written: &mut Vec<Written>,
) -> Result<(), TransactionError> {
    let mut transaction = connection.begin()?;
    until_first(|| {
        let mut facts = transaction.read(&wanted_to_write(writes))?;
        let mut rules = Rules::new(&mut facts);
        let decided: Result<Vec<_>, _> = writes.iter().map(|write| rules.write(write, actor)).collect();
        let changes = decided.as_ref().map(|_| rules.into_changes()).unwrap_or_default();
        transaction.commit(&changes)?;
        transaction.publish(&changes);
        *written = decided.map_err(TransactionError::Refused)?;
        Ok(())
    })
}

/// Repeats an attempt at a transaction while others are first.
fn until_first<T>(mut attempt: impl FnMut() -> Result<T, TransactionError>) -> Result<T, TransactionError> {
    loop {
        match attempt() {
            Err(TransactionError::Again) => {}
            done => return done,
        }
    }
}

/// Counts decided purchases.
pub(super) fn count<'r>(metrics: &Metrics, results: impl Iterator<Item = &'r JobResult>) {
    metrics.decided(results.filter_map(|result| match result {
        Ok(Decision::Purchase(receipt)) => Some(*receipt),
        Ok(Decision::Reservation(reservation)) => reservation.purchase(),
        _ => None,
    }));
}

/// The facts needed to decide these jobs.
fn wanted(jobs: &[PendingJob], waits: bool) -> Wanted {
    let (mut books, mut keys, mut ends, mut holders) = (BTreeSet::new(), Vec::new(), Vec::new(), Vec::new());
    for pending in jobs {
        match &pending.job {
            Job::Purchase(purchase) => {
                books.insert(purchase.book);
                keys.extend(purchase.key);
            }
            Job::Hold(hold) => {
                books.insert(hold.book);
                keys.push(hold.key);
                holders.push(hold.holder);
            }
            Job::EndHold(end) => {
                keys.push(end.key);
                ends.push(end.key);
            }
            Job::SetPrice(book, ..) | Job::RestockBook(book, ..) => {
                books.insert(*book);
            }
            Job::Restock(..) | Job::Write(..) => {}
        }
    }
    Wanted::Named { books, keys, ends, holders, entries: jobs.len(), waits }
}

/// Most log entries of a [`Write`]: stock, price, text, and listed or not.
const ENTRIES_A_WRITE: usize = 4;

/// The facts needed for these writes.
fn wanted_to_write(writes: &[Write]) -> Wanted {
    let (mut books, mut highest) = (BTreeSet::new(), false);
    for write in writes {
        match write {
            Write::Add(book) | Write::Put { book, .. } => _ = books.insert(book.id),
            Write::Edit(id, _) => _ = books.insert(*id),
            Write::AddNext(_) => highest = true,
        }
    }
    Wanted::Whole { books, highest, entries: writes.len() * ENTRIES_A_WRITE }
}
