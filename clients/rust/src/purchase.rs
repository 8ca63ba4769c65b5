//! Orders, their outcomes and their receipts.

use crate::{
    error::{Error, Fault},
    key::Key,
    store::check_id,
    wire::bookstore::{BuyBookReply, BuyOutcome, ReceiptReply},
};

/// An order. A book's id alone is an order of one copy.
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

    /// Sets the number of copies, all or none.
    #[must_use]
    pub fn quantity(self, quantity: i32) -> Self {
        Self { quantity, ..self }
    }

    /// Sets a key in place of a random one. An order sent again with the same key, even by another program on another
    /// day, buys nothing twice.
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

/// Result of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "perhaps nothing was bought"]
pub struct Purchase {
    /// Outcome of the order.
    pub outcome: Outcome,
    /// The key of the purchase.
    pub key: Key,
    /// True if this is the answer to an earlier order with the same key.
    pub replayed: bool,
    /// Copies left after the purchase, if the store reports it.
    pub stock_left: Option<i32>,
    /// Message of the store.
    pub message: String,
}

/// Outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Bought; the sale is on disk.
    Bought {
        /// The purchase's number in the transaction log; 0 if the server does not report it.
        number: i64,
    },
    /// No copy is left.
    SoldOut,
    /// Fewer copies are left than ordered.
    TooFew,
    /// The store has no book with this id.
    NoSuchBook,
    /// Not bought, for no known reason; the message may have one.
    NotBought,
    /// It may have been bought; the fault is why there was no answer. To find out, send the order again with its key.
    Unknown(Fault),
}

/// Proof that the log has a purchase, which anyone can check without the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The proof, in the form of c2sp.org/tlog-proof.
    pub text: String,
    /// The log's public key now, in the form of c2sp.org/signed-note. It proves something only if the reader has it from
    /// elsewhere as well.
    pub log_key: String,
}

impl Receipt {
    pub(crate) fn of(reply: ReceiptReply) -> Option<Self> {
        reply.success.then_some(Self { text: reply.receipt, log_key: reply.log_key })
    }
}

impl Purchase {
    pub(crate) fn new(key: Key, answer: Result<BuyBookReply, Fault>) -> Self {
        let reply = match answer {
            Ok(reply) => reply,
            Err(fault) => return Self::unknown(key, fault),
        };
        // Every server reports whether it was bought; later ones also report why not.
        let outcome = match reply.outcome() {
            _ if reply.success => Outcome::Bought { number: reply.purchase_number },
            BuyOutcome::SoldOut => Outcome::SoldOut,
            BuyOutcome::TooFew => Outcome::TooFew,
            BuyOutcome::NoSuchBook => Outcome::NoSuchBook,
            BuyOutcome::Bought | BuyOutcome::Unspecified => Outcome::NotBought,
        };
        Self { outcome, key, replayed: reply.replayed, stock_left: reply.stock_left, message: reply.message }
    }

    fn unknown(key: Key, fault: Fault) -> Self {
        let message = fault.to_string();
        Self { outcome: Outcome::Unknown(fault), key, replayed: false, stock_left: None, message }
    }
}
