//! The store behind the group commit: opens the file, runs each batch in a transaction, and restocks slice by slice
//! between batches. Must not know what a job does to a book; [`super::batch`] does.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use commit::{Opened, Session, Store};

use super::{
    batch::Batch,
    job::{Answer, Answers, Decision, Job, Request},
    mend::{self, Checkpoints},
    state::Shared,
    transaction::Transactions,
    trouble::{Broken, Trouble},
};
use crate::{
    domain::{BookId, Restocked},
    fault::Fault,
    store::{self, Role, Writer},
};

/// Books that a slice of a restock reads for each that it may raise.
const LOOKED_AT_PER_RAISED: usize = 16;

pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
}

impl Store for Worker {
    type Job = Job;
    type Answer = Answer;
    type Error = Broken;

    fn open(&mut self, session: &mut Session<'_, Self>) -> Result<(), Broken> {
        let shared = &*self.shared;
        let opened = store::open(&shared.path, Role::Ledger, &shared.settings)?;
        let transactions = Transactions::new(shared, Writer::new(&opened.connection)?);
        let mut file = OpenFile { transactions, restocks: VecDeque::new(), checkpoints: Checkpoints::new() };
        session.serve(&mut file)?;
        mend::empty_log(shared, &mut file.transactions.writer);
        Ok(())
    }

    fn failed(&mut self, Broken(reason): &Broken, _: u32) {
        self.shared.metrics.store_failed();
        let path = self.shared.path.display();
        tracing::error!(%reason, %path, "the store failed; it takes nothing until it has been read back");
    }

    fn deadline(job: &Job) -> Option<Instant> {
        match job {
            Job::Purchase(purchase) => purchase.deadline,
            Job::SetPrice(..) | Job::Restock(_) => None,
        }
    }
}

struct OpenFile<'a, 'c> {
    transactions: Transactions<'a, 'c>,
    restocks: VecDeque<Restock>,
    checkpoints: Checkpoints,
}

/// A restock under way.
struct Restock {
    request: Request,
    amount: u32,
    after: Option<BookId>,
    raised: u64,
}

impl Opened<Worker> for OpenFile<'_, '_> {
    fn read_back(&mut self) -> Result<(), Broken> {
        let Transactions { shared, writer, .. } = &mut self.transactions;
        mend::mend(shared, writer)?;
        mend::read_back(shared, writer)?;
        tracing::info!(path = %shared.path.display(), "the store was read back and takes purchases again");
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
        let decided: Result<Vec<Option<Answer>>, _> = self
            .transactions
            .run(|batch, writer| requests.iter().map(|request| decide(batch, writer, request)).collect());
        let decisions = match decided {
            Ok(decisions) => decisions,
            Err(failure) => return failure.answer(requests, answers, |fault| fault),
        };
        self.transactions.shared.metrics.decided(decisions.iter().filter_map(|decision| match decision {
            Some(Ok(Decision::Purchase(receipt))) => Some(receipt),
            _ => None,
        }));
        for (request, decision) in requests.into_iter().zip(decisions) {
            if let Some(decision) = decision {
                answers.add(request, decision);
            }
        }
        Ok(())
    }

    fn tend(&mut self, is_idle: bool, answers: &mut Answers) -> Result<bool, Broken> {
        if is_idle {
            self.transactions.catch_up_readers()?;
        }
        self.continue_restock(answers)?;
        self.checkpoints.make_if_due(self.transactions.shared, &mut self.transactions.writer)?;
        Ok(!self.restocks.is_empty())
    }
}

impl OpenFile<'_, '_> {
    /// One slice of the oldest restock.
    fn continue_restock(&mut self, answers: &mut Answers) -> Result<(), Broken> {
        let Some(mut restock) = self.restocks.pop_front() else { return Ok(()) };
        let slice = self.transactions.shared.settings.restock_slice.max(1);
        let (amount, after) = (restock.amount, restock.after);
        let done = self.transactions.run(|batch, _| {
            let books = batch.books_after(after, slice.saturating_mul(LOOKED_AT_PER_RAISED));
            let (mut raised, mut last) = (0, None);
            for id in books {
                raised += usize::from(batch.raise_stock(id, amount));
                last = Some(id);
                if raised == slice {
                    break;
                }
            }
            Ok((raised, last))
        });
        match done {
            Ok((raised, last)) => {
                restock.raised += u64::try_from(raised).unwrap_or(u64::MAX);
                restock.after = last;
                if last.is_some() {
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
                failure.answer([restock.request], answers, tell)
            }
        }
    }
}

/// `None` if the caller gave up while the worker waited for the file's write lock.
fn decide(batch: &mut Batch<'_>, writer: &mut Writer<'_>, request: &Request) -> Result<Option<Answer>, Trouble> {
    if request.is_abandoned() {
        return Ok(None);
    }
    Ok(match &request.job {
        Job::Purchase(purchase) => Some(batch.purchase(writer, purchase)?.map(Decision::Purchase)),
        Job::SetPrice(book, price) => Some(Ok(Decision::Price(batch.set_price(*book, *price)))),
        Job::Restock(_) => None,
    })
}
