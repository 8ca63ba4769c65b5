//! What the ledger and the readers need of a store, and what a store needs of the ledger: the facts that a batch is
//! decided on, the changes that it leads to, and how a transaction can fail. Must not know any database.

use std::{collections::BTreeSet, fmt, pin::Pin, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    catalogue::{Book, Books},
    domain::{BookId, Entry, IdempotencyKey},
    fault::{Fault, Unavailable},
    money::Cents,
};

/// An answer that may have to wait for the database.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// What [`Store::write`] lends its session to.
pub(crate) type Serve<'s> = dyn FnMut(&mut dyn Session) -> Result<(), Broken> + 's;

/// A part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Newest first, older than this number.
    Before(i64),
    /// Oldest first, newer than this number.
    After(i64),
}

/// Where books and their log are kept. Opening one shows its catalogue to readers.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Opens a connection that writes, lends it to `serve`, and closes it. Called again after each failure.
    fn write(&self, serve: &mut Serve<'_>) -> Result<(), Broken>;

    /// The number of the newest log entry that no earlier one can follow, and a way to wait for newer ones.
    fn newest(&self) -> watch::Receiver<i64>;

    /// Its name in messages to operators; without a password.
    fn name(&self) -> String;

    /// What callers are told from a failure until the store is back.
    fn while_failed(&self) -> Unavailable;

    /// How soon it is looked for again while it is away; `None` means later after each failure.
    fn reopen_pause(&self) -> Option<Duration> {
        None
    }

    /// How old what readers see may be, if the store can be out of reach while they read.
    fn age(&self) -> Option<Duration> {
        None
    }

    /// Up to `count` log entries.
    fn log(&self, page: Page, count: usize) -> Later<'_, Vec<Entry>>;

    /// One book, as the database has it.
    fn book(&self, id: BookId) -> Later<'_, Option<Arc<Book>>>;

    /// Up to `count` books with ids above `after`, as the database has them; of this topic alone if there is one.
    fn books(&self, topic: Option<String>, after: Option<BookId>, count: usize) -> Later<'_, Books>;
}

/// A connection that writes.
pub(crate) trait Session {
    /// Lets `work` see the newest facts that it wants, writes and commits what it decides, and shows that to readers.
    /// It may be asked several times; what it decided last holds. Nothing is changed between what it sees and the commit.
    fn transact(&mut self, work: &mut dyn Work) -> Result<(), Failure>;

    /// After a failure: makes sure that the store can be written, and finds out what it holds.
    fn read_back(&mut self) -> Result<(), Broken>;

    /// Whether a transaction whose COMMIT failed in an earlier session was done. Afterwards that no longer changes.
    fn settle(&mut self, attempt: &Attempt) -> Result<bool, Broken>;

    /// What the store does beside transactions; called after each batch, and when none came for a while.
    fn tend(&mut self, is_idle: bool) -> Result<(), Broken>;
}

/// What is done in a transaction.
pub(crate) trait Work {
    /// The facts that it needs.
    fn wanted(&self) -> Wanted;

    /// Takes on what has come up while the store read what was wanted, if that is worth another trip, and returns the further
    /// facts for it. Of those, a store may leave out books that others hold; one that never waits for others need not ask.
    fn more(&mut self) -> Option<Wanted> {
        None
    }

    /// The ledger's rules, applied to these facts.
    fn decide(&mut self, facts: &mut dyn Facts) -> Result<Changes, Failure>;
}

/// The facts that a transaction needs.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// Of these books and keys.
    Named {
        /// In order.
        books: BTreeSet<BookId>,
        keys: Vec<IdempotencyKey>,
        /// The most log entries that it may lead to.
        entries: usize,
        /// Whether books that others have locked are waited for before they are left out.
        waits: bool,
    },
    /// Of books that have fewer copies than `amount`, with ids above `after`, at most `most`.
    Below { amount: u32, after: Option<BookId>, most: usize },
}

/// What the store holds, inside a transaction.
pub(crate) trait Facts {
    /// Whether a book of [`Work::more`] was left out, so that nothing can be decided about it.
    fn is_left_out(&self, _id: BookId) -> bool {
        false
    }

    /// Whether a book was left out because another transaction has locked it for longer than this one waits.
    fn is_locked(&self, _id: BookId) -> bool {
        false
    }

    /// A book's stock and price; `None` if there is no such book.
    fn book(&mut self, id: BookId) -> Option<(u32, Cents)>;

    /// The entry that has this key; if there is none, the one that has it in the common space.
    fn earlier(&mut self, key: &IdempotencyKey) -> Result<Option<Entry>, Failure>;

    /// The books that [`Wanted::Below`] asks for, in order, and where to go on if there may be more of them.
    fn below(&mut self) -> (Vec<BookId>, Option<BookId>);

    /// A number for a log entry of this book, above those of all its earlier entries.
    fn next_number(&mut self, id: BookId) -> i64;
}

/// New stock and price of a book, with what they were.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BookChange {
    pub id: BookId,
    pub stock: (u32, u32),
    pub price_cents: (i64, i64),
}

/// What a transaction writes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// In the order of ids.
    pub books: Vec<BookChange>,
    /// Those of each book in the order of numbers.
    pub entries: Vec<Entry>,
    /// An answer repeats what an earlier transaction did, and must not be given before that one is as durable as this.
    pub repeats: bool,
}

/// A connection cannot be used any more, and this is why.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

/// A transaction that did not happen, or of which no one knows.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was done.
    Refused(Fault),
    /// Nothing was done, and the connection is given up, which also rolls back.
    Undone(Fault, Broken),
    /// COMMIT failed: no one knows whether it was done, until it is settled if it can be.
    Unknown(Broken, Option<Attempt>),
}

/// A transaction of a session, by which another session finds out what became of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub session: i64,
    pub batch: i64,
}
