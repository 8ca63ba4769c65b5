//! What is bought, and what came of it.

use crate::{
    error::{Error, Fault},
    key::Key,
    store::check_id,
    wire::bookstore::{BuyBookReply, BuyOutcome},
};

/// What to buy. The id of a book alone is an order of one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub(crate) id: i32,
    pub(crate) quantity: i32,
    pub(crate) key: Option<Key>,
}

impl Order {
    /// One copy of a book.
    pub fn of(id: i32) -> Self {
        Self { id, quantity: 1, key: None }
    }

    /// So many copies, all or none.
    #[must_use]
    pub fn quantity(self, quantity: i32) -> Self {
        Self { quantity, ..self }
    }

    /// A key in place of a random one. An order that is sent again, also by another program on another day, buys nothing
    /// twice if it has the same key.
    #[must_use]
    pub fn key(self, key: Key) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_id(self.id)?;
        if self.quantity < 1 {
            return Err(Error::Argument(format!("quantity is {}; it must be a whole number from 1", self.quantity)));
        }
        Ok(())
    }
}

impl From<i32> for Order {
    fn from(id: i32) -> Self {
        Self::of(id)
    }
}

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "perhaps nothing was bought"]
pub struct Purchase {
    /// Whether it was bought, and why not.
    pub outcome: Outcome,
    /// The key of the purchase.
    pub key: Key,
    /// Whether this is the answer that an earlier order with the same key had.
    pub is_replay: bool,
    /// Copies left after the purchase, where the store says it.
    pub stock_left: Option<i32>,
    /// The store's words.
    pub message: String,
    /// The entry's number in the transaction log, where refusals with a key stand too; 0 if there is none.
    pub(crate) entry_number: i64,
    /// As the store named the outcome.
    pub(crate) named: BuyOutcome,
}

/// Whether copies were bought.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The sale is on disk.
    Bought {
        /// The purchase's number in the transaction log.
        number: i64,
    },
    /// No copy is left.
    SoldOut,
    /// Some copies are left, but fewer than were asked for.
    TooFew,
    /// The store has no book with this id.
    NoSuchBook,
    /// Nothing was bought, for a reason that this library does not know; the message has it.
    NotBought,
    /// It may have been bought: why there was no answer. Send the order again with its key to learn it.
    Unknown(Fault),
}

impl Purchase {
    pub(crate) fn new(key: Key, reply: BuyBookReply) -> Self {
        let outcome = match reply.outcome() {
            _ if reply.success => Outcome::Bought { number: reply.purchase_number },
            BuyOutcome::SoldOut => Outcome::SoldOut,
            BuyOutcome::TooFew => Outcome::TooFew,
            BuyOutcome::NoSuchBook => Outcome::NoSuchBook,
            BuyOutcome::Bought | BuyOutcome::Unspecified => Outcome::NotBought,
        };
        Self {
            outcome,
            key,
            is_replay: reply.replayed,
            stock_left: reply.stock_left,
            entry_number: reply.purchase_number,
            named: reply.outcome(),
            message: reply.message,
        }
    }

    pub(crate) fn unknown(key: Key, fault: Fault) -> Self {
        let message = fault.to_string();
        Self {
            outcome: Outcome::Unknown(fault),
            key,
            is_replay: false,
            stock_left: None,
            message,
            entry_number: 0,
            named: BuyOutcome::Unspecified,
        }
    }
}
