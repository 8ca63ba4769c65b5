//! Jobs of the ledger and their answers.

use commit::Pending;

use crate::{
    domain::{BookId, PriceChange, Purchase, Receipt, Restocked},
    fault::Fault,
    money::Cents,
};

/// Work for a transaction.
pub(super) enum Job {
    Purchase(Purchase),
    SetPrice(BookId, Cents),
    /// Runs in separate transactions.
    Restock(u32),
}

impl Job {
    /// The book that it is about, if it is about one.
    pub(super) const fn book(&self) -> Option<BookId> {
        match self {
            Self::Purchase(purchase) => Some(purchase.book),
            Self::SetPrice(book, _) => Some(*book),
            Self::Restock(_) => None,
        }
    }
}

/// Result of a job.
pub(super) enum Decision {
    Purchase(Receipt),
    Price(Option<PriceChange>),
    Restocked(Restocked),
}

pub(super) type Answer = Result<Decision, Fault>;

/// A job with its waiting caller.
pub(super) type Request = Pending<Job, Answer>;
pub(super) type Answers = commit::Answers<Answer>;
