//! Interface of the ledger and the readers with a store: the facts that a batch is decided on, the resulting changes,
//! and the failures of a transaction.

use std::{collections::BTreeSet, fmt, pin::Pin, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    catalogue::{Book, Books},
    domain::{BookId, Entry, IdempotencyKey},
    fault::{Fault, Unavailable},
    money::Cents,
};

/// An answer that may wait for the database.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// Callback that [`Store::write`] lends its session to.
pub(crate) type Serve<'s> = dyn FnMut(&mut dyn Session) -> Result<(), Broken> + 's;

/// A part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Newest first, older than this number.
    Before(i64),
    /// Oldest first, newer than this number.
    After(i64),
}

/// Storage of books and their log. Opening one publishes its catalogue.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Opens a writing connection, lends it to `serve`, and closes it. Called again after each failure.
    fn write(&self, serve: &mut Serve<'_>) -> Result<(), Broken>;

    /// The newest entry number below which the log is final, to watch for newer ones.
    fn newest(&self) -> watch::Receiver<i64>;

    /// Its name in messages to operators; without a password.
    fn name(&self) -> String;

    /// Error for callers from a failure until the store is back.
    fn while_failed(&self) -> Unavailable;

    /// Pause before a retry while it is away; `None` for one that grows with each failure.
    fn reopen_pause(&self) -> Option<Duration> {
        None
    }

    /// Greatest age of the readers' data, if the store can be unreachable while they read.
    fn age(&self) -> Option<Duration> {
        None
    }

    /// Up to `count` log entries.
    fn log(&self, page: Page, count: usize) -> Later<'_, Vec<Entry>>;

    /// One book from the database.
    fn book(&self, id: BookId) -> Later<'_, Option<Arc<Book>>>;

    /// Up to `count` books with ids above `after` from the database; only of this topic, if given.
    fn books(&self, topic: Option<String>, after: Option<BookId>, count: usize) -> Later<'_, Books>;
}

/// A writing connection.
pub(crate) trait Session {
    /// Gives `work` the newest facts that it wants, commits its changes and publishes them. May call it several times;
    /// the last decision holds. Nothing changes between the facts and the commit.
    fn transact(&mut self, work: &mut dyn Work) -> Result<(), Failure>;

    /// After a failure: checks that the store is writable, and reads its state.
    fn read_back(&mut self) -> Result<(), Broken>;

    /// True if a transaction whose COMMIT failed in an earlier session was committed. The result is final.
    fn settle(&mut self, attempt: &Attempt) -> Result<bool, Broken>;

    /// Maintenance besides transactions; called after each batch, and when none came for a while.
    fn tend(&mut self, is_idle: bool) -> Result<(), Broken>;
}

/// Work of a transaction.
pub(crate) trait Work {
    /// The facts it needs.
    fn wanted(&self) -> Wanted;

    /// Adds work that has arrived while the store read the facts, if worth another round trip, and returns the further
    /// facts needed. A store may leave out books of these that are locked elsewhere; one that never waits for locks
    /// need not call this.
    fn more(&mut self) -> Option<Wanted> {
        None
    }

    /// Applies the ledger's rules to these facts.
    fn decide(&mut self, facts: &mut dyn Facts) -> Result<Changes, Failure>;
}

/// The facts that a transaction needs.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// Facts of these books and keys.
    Named {
        /// Sorted.
        books: BTreeSet<BookId>,
        keys: Vec<IdempotencyKey>,
        /// Most log entries that may result.
        entries: usize,
        /// True to wait for books that others have locked before they are left out.
        waits: bool,
    },
    /// Facts of at most `most` books with fewer copies than `amount` and ids above `after`.
    Below { amount: u32, after: Option<BookId>, most: usize },
}

/// The store's state inside a transaction.
pub(crate) trait Facts {
    /// True if a book of [`Work::more`] was left out, so that nothing can be decided about it.
    fn is_left_out(&self, _id: BookId) -> bool {
        false
    }

    /// True if a book was left out because another transaction has locked it for longer than this one waits.
    fn is_locked(&self, _id: BookId) -> bool {
        false
    }

    /// A book's stock and price; `None` if it does not exist.
    fn book(&mut self, id: BookId) -> Option<(u32, Cents)>;

    /// The entry that has this key; if there is none, the one that has it in the common space.
    fn earlier(&mut self, key: &IdempotencyKey) -> Result<Option<Entry>, Failure>;

    /// The books of [`Wanted::Below`], in order, and the continuation if there may be more.
    fn below(&mut self) -> (Vec<BookId>, Option<BookId>);

    /// A number for a log entry of this book, above those of all its earlier entries.
    fn next_number(&mut self, id: BookId) -> i64;
}

/// Old and new stock and price of a book.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BookChange {
    pub id: BookId,
    pub stock: (u32, u32),
    pub price_cents: (i64, i64),
}

/// Writes of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// By id.
    pub books: Vec<BookChange>,
    /// Each book's in the order of numbers.
    pub entries: Vec<Entry>,
    /// An answer repeats the result of an earlier transaction, and must wait until that is as durable as this one.
    pub repeats: bool,
}

/// Reason why a connection is unusable.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

/// A transaction that rolled back, or whose commit is in doubt.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was done.
    Refused(Fault),
    /// Nothing was done, and the connection is dropped, which also rolls back.
    Undone(Fault, Broken),
    /// COMMIT failed: the outcome is unknown until settled, if that is possible.
    Unknown(Broken, Option<Attempt>),
}

/// Identifies a session's transaction, so that another session can determine its outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub session: i64,
    pub batch: i64,
}
