//! Runs batches of jobs as transactions of a store, and slices of restocks between them.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use commit::{Opened, Queued};

use super::{
    batch::Batch,
    job::{Answer, Answers, Decision, Job, Request},
};
use crate::{
    domain::{BookId, Restocked},
    fault::Fault,
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
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    /// The batch whose COMMIT failed.
    unsettled: Option<Unsettled>,
}

/// A batch whose commit is in doubt.
struct Unsettled {
    attempt: Attempt,
    since: Instant,
    decided: Vec<(Request, Option<Answer>)>,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, unsettled: None }
    }
}

impl commit::Store for Worker {
    type Job = Job;
    type Answer = Answer;
    type Error = Broken;

    fn open(&mut self, session: &mut commit::Session<'_, Self>) -> Result<(), Broken> {
        let (shared, unsettled) = (&*self.shared, &mut self.unsettled);
        shared.store.write(&mut |open| {
            let (restocks, settled) = (VecDeque::new(), Vec::new());
            let queued = session.queued();
            session.serve(&mut OpenStore { shared, session: open, queued, restocks, unsettled, settled })
        })
    }

    fn failed(&mut self, Broken(reason): &Broken, failures: u32) {
        // Their callers get an unknown outcome.
        drop(self.unsettled.take_if(|unsettled| unsettled.since.elapsed() > SETTLE));
        // Failed reconnections do not count as new failures.
        if failures == 1 {
            self.shared.metrics.store_failed();
        }
        let store = self.shared.store.name();
        tracing::error!(%reason, %store, "the store failed; it takes nothing until it has been read back");
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
    unsettled: &'a mut Option<Unsettled>,
    /// Known answers not yet sent.
    settled: Vec<(Request, Answer)>,
}

/// A restock in progress.
struct Restock {
    request: Request,
    amount: u32,
    after: Option<BookId>,
    raised: u64,
}

impl Opened<Worker> for OpenStore<'_> {
    fn read_back(&mut self) -> Result<(), Broken> {
        self.session.read_back()?;
        self.settle()?;
        tracing::info!(store = %self.shared.store.name(), "the store was read back and takes purchases again");
        Ok(())
    }

    fn commit(&mut self, mut requests: Vec<Request>, answers: &mut Answers) -> Result<(), Broken> {
        for request in requests.extract_if(.., |request| matches!(request.job, Job::Restock(_))) {
            if let Job::Restock(amount) = request.job {
                self.restocks.push_back(Restock { request, amount, after: None, raised: 0 });
            }
        }
        if requests.is_empty() {
            return Ok(());
        }
        let mut work = Orders { requests, decisions: Vec::new(), queued: &self.queued };
        let done = self.session.transact(&mut work);
        let Orders { requests, decisions, .. } = work;
        match done {
            Ok(()) => {
                self.count(decisions.iter().flatten());
                for (request, decision) in requests.into_iter().zip(decisions) {
                    if let Some(decision) = decision {
                        answers.add(request, decision);
                    }
                }
                Ok(())
            }
            Err(Failure::Unknown(broken, Some(attempt))) => {
                let decided = requests.into_iter().zip(decisions).collect();
                *self.unsettled = Some(Unsettled { attempt, since: Instant::now(), decided });
                Err(broken)
            }
            Err(failure) => answer_failure(failure, requests, answers, |fault| fault),
        }
    }

    fn tend(&mut self, is_idle: bool, answers: &mut Answers) -> Result<bool, Broken> {
        for (request, answer) in self.settled.drain(..) {
            answers.add(request, answer);
        }
        self.continue_restock(answers)?;
        self.session.tend(is_idle)?;
        Ok(!self.restocks.is_empty())
    }
}

/// Purchases and prices.
struct Orders<'a> {
    requests: Vec<Request>,
    decisions: Vec<Option<Answer>>,
    queued: &'a Queued<'a, Worker>,
}

impl Work for Orders<'_> {
    fn wanted(&self) -> Wanted {
        wanted(&self.requests)
    }

    fn more(&mut self) -> Option<Wanted> {
        let before = self.requests.len();
        // While another server held a book, requests have arrived: taking them into this transaction halves the number
        // of transactions and of waits for others. For fewer, another round trip would not pay.
        if self.queued.len() < before {
            return None;
        }
        self.queued.take_into(&mut self.requests);
        self.requests.get(before..).filter(|taken| !taken.is_empty()).map(wanted)
    }

    fn decide(&mut self, facts: &mut dyn Facts) -> Result<Changes, Failure> {
        let is_later = |request: &mut Request| match &request.job {
            Job::Purchase(purchase) => facts.is_left_out(purchase.book),
            Job::SetPrice(book, _) => facts.is_left_out(*book),
            Job::Restock(_) => true,
        };
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
    /// The continuation.
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
                restock.after = after;
                if after.is_some() {
                    self.restocks.push_front(restock);
                } else {
                    let done = Restocked { books_raised: restock.raised };
                    answers.add(restock.request, Ok(Decision::Restocked(done)));
                }
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
fn wanted(requests: &[Request]) -> Wanted {
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
    Wanted::Named { books, keys, entries: requests.len() }
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
