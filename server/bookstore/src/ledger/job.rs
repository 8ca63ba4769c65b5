//! What callers ask of the ledger, and what they get. Must not know how it is done.

use commit::Pending;

use crate::{
    domain::{BookId, PriceChange, Purchase, Receipt, Restocked},
    fault::Fault,
    money::Cents,
};

/// Something to do in a transaction.
pub(super) enum Job {
    Purchase(Purchase),
    SetPrice(BookId, Cents),
    /// Runs in transactions of its own.
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

/// What became of a job.
pub(super) enum Decision {
    Purchase(Receipt),
    Price(Option<PriceChange>),
    Restocked(Restocked),
}

pub(super) type Answer = Result<Decision, Fault>;

/// A job with the caller that waits for it.
pub(super) type Request = Pending<Job, Answer>;
pub(super) type Answers = commit::Answers<Answer>;
