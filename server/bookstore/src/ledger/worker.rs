//! Runs batches of jobs as transactions of a store, and slices of restocks between them.

use std::{
    collections::{BTreeSet, VecDeque},
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use commit::{Opened, Queued};

use super::{
    batch::Batch,
    blocked::Blocked,
    job::{Answer, Answers, Decision, Job, Request},
};
use crate::{
    domain::{BookId, Restocked},
    fault::{Fault, Unavailable},
    metrics::Metrics,
    settings::Settings,
    store::{Attempt, Broken, Changes, Facts, Failure, Session, Store, Wanted, Work},
};

/// Longest time a batch's callers wait for its outcome after a failed COMMIT.
const SETTLE: Duration = Duration::from_secs(15);

/// State shared by the workers.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: Settings,
    pub(super) metrics: Arc<Metrics>,
    /// Reason why the store accepts nothing; `None` while it does.
    pub(super) trouble: Mutex<Option<String>>,
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    /// The batch whose COMMIT failed.
    unsettled: Option<Unsettled>,
    outage: Outage,
}

/// A time in which the store accepts nothing. Its begin and end are logged.
struct Outage {
    since: Instant,
    failures: u32,
}

/// A batch whose commit is in doubt.
struct Unsettled {
    attempt: Attempt,
    since: Instant,
    decided: Vec<(Request, Option<Answer>)>,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, unsettled: None, outage: Outage { since: Instant::now(), failures: 0 } }
    }
}

impl commit::Store for Worker {
    type Job = Job;
    type Answer = Answer;
    type Error = Broken;

    fn open(&mut self, session: &mut commit::Session<'_, Self>) -> Result<(), Broken> {
        let (shared, unsettled, outage) = (&*self.shared, &mut self.unsettled, &self.outage);
        shared.store.write(&mut |open| {
            let queued = session.queued();
            session.serve(&mut OpenStore {
                shared,
                session: open,
                queued,
                restocks: VecDeque::new(),
                blocked: Blocked::default(),
                tried: Instant::now(),
                is_busy: false,
                unsettled,
                settled: Vec::new(),
                outage,
            })
        })
    }

    fn failed(&mut self, Broken(reason): &Broken, failures: u32) {
        // Their callers get an unknown outcome.
        drop(self.unsettled.take_if(|unsettled| unsettled.since.elapsed() > SETTLE));
        // Failed reconnections do not count as new failures.
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.clone());
        let store = self.shared.store.name();
        if failures == 1 {
            self.outage.since = Instant::now();
            self.shared.metrics.store_failed();
            tracing::error!(%reason, %store, "the store failed; it takes nothing until it has been read back");
        } else {
            tracing::debug!(%reason, %store, failures, "the store cannot be read back yet");
        }
        self.outage.failures = failures;
    }

    fn pause(&self, failures: u32) -> Duration {
        self.shared.store.reopen_pause().unwrap_or_else(|| commit::backoff(failures))
    }

    fn deadline(job: &Job) -> Option<Instant> {
        match job {
            Job::Purchase(purchase) => purchase.deadline,
            Job::SetPrice(..) | Job::Restock(_) => None,
        }
    }
}

struct OpenStore<'a> {
    shared: &'a Shared,
    session: &'a mut dyn Session,
    queued: Queued<'a, Worker>,
    restocks: VecDeque<Restock>,
    blocked: Blocked,
    /// Time of the last retry of `blocked`.
    tried: Instant,
    /// True if requests for unlocked books have come since the last [`Opened::tend`].
    is_busy: bool,
    unsettled: &'a mut Option<Unsettled>,
    /// Known answers not yet sent.
    settled: Vec<(Request, Answer)>,
    outage: &'a Outage,
}

/// A restock in progress.
struct Restock {
    request: Request,
    amount: u32,
    after: Option<BookId>,
    raised: u64,
    /// Time of its last progress.
    moved: Instant,
}

impl Opened<Worker> for OpenStore<'_> {
    fn read_back(&mut self) -> Result<(), Broken> {
        self.session.read_back()?;
        self.settle()?;
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let Outage { since, failures } = self.outage;
        let seconds = since.elapsed().as_secs_f64();
        let store = self.shared.store.name();
        tracing::info!(%store, failures, seconds, "the store was read back and takes purchases again");
        Ok(())
    }

    fn commit(&mut self, mut requests: Vec<Request>, answers: &mut Answers) -> Result<(), Broken> {
        for request in requests.extract_if(.., |request| matches!(request.job, Job::Restock(_))) {
            if let Job::Restock(amount) = request.job {
                self.restocks.push_back(Restock { request, amount, after: None, raised: 0, moved: Instant::now() });
            }
        }
        let is_blocked = |request: &mut Request| request.job.book().is_some_and(|book| self.blocked.has(book));
        let blocked: Vec<Request> = requests.extract_if(.., is_blocked).collect();
        self.block(blocked, answers);
        if requests.is_empty() {
            return Ok(());
        }
        self.is_busy = true;
        let sold = self.sell(requests, true, answers).map(drop);
        self.end_if_broken(sold, answers)
    }

    fn tend(&mut self, is_idle: bool, answers: &mut Answers) -> Result<bool, Broken> {
        for (request, answer) in self.settled.drain(..) {
            answers.add(request, answer);
        }
        let tended = self
            .try_blocked(answers)
            .and_then(|()| self.continue_restock(answers))
            .and_then(|()| self.session.tend(is_idle));
        self.end_if_broken(tended, answers)?;
        Ok(!self.restocks.is_empty() || !self.blocked.is_empty())
    }
}

/// Purchases and price changes.
struct Orders<'a> {
    requests: Vec<Request>,
    /// True to wait for books that others have locked.
    waits: bool,
    /// Requests for books that stayed locked.
    blocked: Vec<Request>,
    decisions: Vec<Option<Answer>>,
    queued: &'a Queued<'a, Worker>,
}

impl Work for Orders<'_> {
    fn wanted(&self) -> Wanted {
        wanted(&self.requests, self.waits)
    }

    fn more(&mut self) -> Option<Wanted> {
        let before = self.requests.len();
        // Requests have arrived while another server held a book. If they at least double the batch, taking them along
        // halves the number of transactions and of waits for others; fewer are not worth another round trip.
        if self.queued.len() < before {
            return None;
        }
        self.queued.take_into(&mut self.requests);
        self.requests.get(before..).filter(|taken| !taken.is_empty()).map(|taken| wanted(taken, false))
    }

    fn decide(&mut self, facts: &mut dyn Facts) -> Result<Changes, Failure> {
        let is_blocked = |request: &mut Request| request.job.book().is_some_and(|book| facts.is_locked(book));
        self.blocked.extend(self.requests.extract_if(.., is_blocked));
        let is_later = |request: &mut Request| request.job.book().is_none_or(|book| facts.is_left_out(book));
        self.queued.put_back(self.requests.extract_if(.., is_later).collect());
        let mut batch = Batch::new(facts);
        self.decisions = self.requests.iter().map(|request| decide(&mut batch, request)).collect::<Result<_, _>>()?;
        Ok(batch.into_changes())
    }
}

/// A slice of a restock.
struct Slice {
    amount: u32,
    after: Option<BookId>,
    most: usize,
    raised: usize,
    /// Start of the next slice; `None` after the last.
    next: Option<BookId>,
}

impl Work for Slice {
    fn wanted(&self) -> Wanted {
        Wanted::Below { amount: self.amount, after: self.after, most: self.most }
    }

    fn decide(&mut self, facts: &mut dyn Facts) -> Result<Changes, Failure> {
        let mut batch = Batch::new(facts);
        (self.raised, self.next) = batch.raise_wanted(self.amount);
        Ok(batch.into_changes())
    }
}

impl OpenStore<'_> {
    fn count<'d>(&self, decisions: impl Iterator<Item = &'d Answer>) {
        self.shared.metrics.decided(decisions.filter_map(|decision| match decision {
            Ok(Decision::Purchase(receipt)) => Some(receipt),
            _ => None,
        }));
    }

    /// Carries out purchases and price changes. Returns the books that are locked, and keeps their requests aside.
    fn sell(&mut self, requests: Vec<Request>, waits: bool, answers: &mut Answers) -> Result<BTreeSet<BookId>, Broken> {
        let (blocked, decisions) = (Vec::new(), Vec::new());
        let mut work = Orders { requests, waits, blocked, decisions, queued: &self.queued };
        let done = self.session.transact(&mut work);
        let Orders { requests, blocked, decisions, .. } = work;
        let locked = blocked.iter().filter_map(|request| request.job.book()).collect();
        self.block(blocked, answers);
        match done {
            Ok(()) => {
                self.count(decisions.iter().flatten());
                for (request, decision) in requests.into_iter().zip(decisions) {
                    if let Some(decision) = decision {
                        answers.add(request, decision);
                    }
                }
            }
            Err(Failure::Unknown(broken, Some(attempt))) => {
                let decided = requests.into_iter().zip(decisions).collect();
                *self.unsettled = Some(Unsettled { attempt, since: Instant::now(), decided });
                return Err(broken);
            }
            Err(failure) => answer_failure(failure, requests, answers, |fault| fault)?,
        }
        Ok(locked)
    }

    /// Keeps requests for locked books aside, up to the limit, and refuses the others.
    fn block(&mut self, requests: Vec<Request>, answers: &mut Answers) {
        for request in requests {
            match request.job.book().filter(|_| self.blocked.len() < self.shared.settings.limits.purchases_queued) {
                Some(book) => self.blocked.add(book, request),
                None => answers.add(request, Err(Fault::Unavailable(Unavailable::BookLocked))),
            }
        }
    }

    /// Retries requests for locked books. Waits for the locks if there is nothing else to do.
    fn try_blocked(&mut self, answers: &mut Answers) -> Result<(), Broken> {
        let is_busy = mem::take(&mut self.is_busy);
        let is_early = is_busy && self.tried.elapsed() < self.shared.settings.poll_interval;
        if self.blocked.is_empty() || is_early {
            return Ok(());
        }
        self.tried = Instant::now();
        let (mut books, requests) = self.blocked.take(self.shared.settings.batch_max);
        let locked = self.sell(requests, !is_busy, answers)?;
        books.retain(|book| !locked.contains(book));
        self.queued.put_back(self.blocked.unlock(&books));
        for request in self.blocked.expired(self.shared.settings.busy_timeout) {
            answers.add(request, Err(Fault::Unavailable(Unavailable::BookLocked)));
        }
        Ok(())
    }

    /// Refuses the requests kept aside if the store broke.
    fn end_if_broken(&mut self, done: Result<(), Broken>, answers: &mut Answers) -> Result<(), Broken> {
        if done.is_err() {
            for request in self.blocked.expired(Duration::ZERO) {
                answers.add(request, Err(Fault::Unavailable(self.shared.store.while_failed())));
            }
        }
        done
    }

    /// Determines the outcome of the batch whose COMMIT failed.
    fn settle(&mut self) -> Result<(), Broken> {
        let Some(Unsettled { attempt, .. }) = self.unsettled else { return Ok(()) };
        let is_done = self.session.settle(attempt)?;
        let Some(Unsettled { decided, .. }) = self.unsettled.take() else { return Ok(()) };
        tracing::info!(is_done, requests = decided.len(), "a commit that had failed was settled");
        if is_done {
            self.count(decided.iter().filter_map(|(_, decision)| decision.as_ref()));
        }
        let undone = || Err(Fault::Unavailable(self.shared.store.while_failed()));
        let answers = decided
            .into_iter()
            .filter_map(|(request, decision)| Some((request, if is_done { decision? } else { undone() })));
        self.settled = answers.collect();
        Ok(())
    }

    /// Runs one slice of the oldest restock.
    fn continue_restock(&mut self, answers: &mut Answers) -> Result<(), Broken> {
        let Some(mut restock) = self.restocks.pop_front() else { return Ok(()) };
        let most = self.shared.settings.restock_slice.max(1);
        let mut slice = Slice { amount: restock.amount, after: restock.after, most, raised: 0, next: None };
        let done = self.session.transact(&mut slice);
        match done {
            Ok(()) => {
                let Slice { raised, next: after, .. } = slice;
                restock.raised += u64::try_from(raised).unwrap_or(u64::MAX);
                (restock.after, restock.moved) = (after, Instant::now());
                if after.is_some() {
                    self.restocks.push_front(restock);
                } else {
                    let done = Restocked { books_raised: restock.raised };
                    answers.add(restock.request, Ok(Decision::Restocked(done)));
                }
                Ok(())
            }
            Err(Failure::Refused(Fault::Unavailable(Unavailable::BookLocked)))
                if restock.moved.elapsed() < self.shared.settings.busy_timeout =>
            {
                self.restocks.push_back(restock);
                Ok(())
            }
            Err(failure) => {
                let raised = restock.raised;
                let tell = |fault| if raised > 0 { Fault::Stopped(raised) } else { fault };
                answer_failure(failure, [restock.request], answers, tell)
            }
        }
    }
}

/// The facts needed to decide these requests.
fn wanted(requests: &[Request], waits: bool) -> Wanted {
    let (mut books, mut keys) = (BTreeSet::new(), Vec::new());
    for request in requests {
        match &request.job {
            Job::Purchase(purchase) => {
                books.insert(purchase.book);
                keys.extend(purchase.key);
            }
            Job::SetPrice(book, _) => {
                books.insert(*book);
            }
            Job::Restock(_) => {}
        }
    }
    Wanted::Named { books, keys, entries: requests.len(), waits }
}

/// Decides a request; `None` if the caller gave up while the worker waited for the store's lock.
fn decide(batch: &mut Batch<'_>, request: &Request) -> Result<Option<Answer>, Failure> {
    if request.is_abandoned() {
        return Ok(None);
    }
    Ok(match &request.job {
        Job::Purchase(purchase) => Some(batch.purchase(purchase)?.map(Decision::Purchase)),
        Job::SetPrice(book, price) => Some(Ok(Decision::Price(batch.set_price(*book, *price)))),
        Job::Restock(_) => None,
    })
}

/// Answers callers after a failure; fails if the connection is broken.
fn answer_failure(
    failure: Failure,
    requests: impl IntoIterator<Item = Request>,
    answers: &mut Answers,
    tell: impl Fn(Fault) -> Fault,
) -> Result<(), Broken> {
    let (fault, broken) = match failure {
        Failure::Refused(fault) => (fault, Ok(())),
        Failure::Undone(fault, broken) => (fault, Err(broken)),
        // A dropped request has an unknown outcome.
        Failure::Unknown(broken, _) => return Err(broken),
    };
    for request in requests {
        answers.add(request, Err(tell(fault.clone())));
    }
    broken
}
