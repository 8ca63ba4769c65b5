//! Interface of the ledger and the readers with a store. A transaction of the ledger begins, reads facts, commits the
//! changes that the ledger decides on them, and publishes them.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use tlog::{EntryProof, Hash, Tile, Verifier};
use tokio::sync::watch;

use super::facts::{Facts, Wanted};
use crate::{
    catalogue::{Book, Books},
    domain::{BookId, Entry, EntryKind, Holder, LogFilter, NewBook, SalesQuery, Sold},
    fault::{Fault, Unavailable},
    witness::{Cosigned, Head},
};

/// Result of a read that may wait for the database.
pub(crate) type ReadFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// A part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Newest first, older than this number.
    Before(i64),
    /// Oldest first, newer than this number.
    After(i64),
}

/// Books of a page.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// All, delisted ones too.
    All,
    /// All that shoppers find.
    Listed,
    /// The listed ones of this topic.
    Topic(String),
}

/// Entries of a filtered log, newest first, and the number before which the next page begins, if there may be more.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) entries: Vec<Entry>,
    pub(crate) next: Option<i64>,
}

impl Found {
    /// A page of at most `count` entries, of which the numbers from `floor` on were looked at and those from `first` on
    /// may be wanted.
    pub(super) fn of(entries: Vec<Entry>, count: usize, floor: i64, first: i64) -> Self {
        let next = match entries.last().filter(|_| entries.len() == count) {
            Some(last) => Some(last.number),
            None => Some(floor),
        };
        Self { next: next.filter(|next| *next > first.max(1)), entries }
    }
}

/// Sums by day, in days since 1970, and by book; an error if there are too many.
pub(crate) type SalesSums = Result<Vec<(Option<i64>, Option<BookId>, Sold)>, TooMany>;

/// More rows of sales than fit into memory.
#[derive(Debug)]
pub(crate) struct TooMany(pub(crate) usize);

/// Storage of books and their log. Opening one publishes its catalogue.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Opens a connection for the ledger; another after each failure.
    fn connect(&self) -> Result<Box<dyn LedgerConnection + '_>, Broken>;

    /// True if a transaction locks its books one by one. Jobs arrive while it waits for those of others, and it may
    /// leave out books that stay locked.
    fn locks_books(&self) -> bool;

    /// The newest entry number below which the log is final, to watch for newer ones.
    fn newest(&self) -> watch::Receiver<i64>;

    /// The signed tree over its log; `None` if it has none.
    fn signed_log(&self) -> Option<&dyn SignedLog> {
        None
    }

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

    /// Number of the store's replicas, if it can have any and shows them.
    fn replicas(&self) -> Option<u64> {
        None
    }

    /// Up to `count` log entries.
    fn log(&self, page: Page, count: usize) -> ReadFuture<'_, Vec<Entry>>;

    /// Up to `count` of the chosen log entries before the number `before`, newest first. A page may end early.
    fn find(&self, before: i64, filter: LogFilter, count: usize) -> ReadFuture<'_, Found>;

    /// Sums of sales.
    fn sales(&self, query: SalesQuery) -> ReadFuture<'_, SalesSums>;

    /// One listed book from the database.
    fn book(&self, id: BookId) -> ReadFuture<'_, Option<Arc<Book>>>;

    /// Up to `count` of the chosen books with ids above `after`, from the database.
    fn books(&self, which: Which, after: Option<BookId>, count: usize) -> ReadFuture<'_, Books>;
}

/// The tree over a store's log, for others to verify. A size, a root and all that rests on them is of entries that are
/// acknowledged and on disk.
pub(crate) trait SignedLog: fmt::Debug + Send + Sync {
    /// The public key.
    fn key(&self) -> ReadFuture<'_, Verifier>;

    /// The newest size and root, signed.
    fn head(&self) -> ReadFuture<'_, Head>;

    /// The hashes of a tile; `None` if the tree does not have all of them.
    fn tile(&self, tile: Tile) -> ReadFuture<'_, Option<Vec<u8>>>;

    /// The entries of a tile of level 0, each after its length in two bytes; `None` as for [`Self::tile`].
    fn entries(&self, tile: Tile) -> ReadFuture<'_, Option<Vec<u8>>>;

    /// The proof that a checkpoint covers the entry with this number; `None` if it does not. The checkpoint is the
    /// cosigned one if that covers the entry, or else the newest.
    fn proof(&self, number: i64, cosigned: Option<Cosigned>) -> ReadFuture<'_, Option<EntryProof>>;

    /// The proof that the log of the first `new` entries, with this root, begins with the first `old`; `None` if the
    /// log does not have so many.
    fn consistency(&self, old: u64, new: u64, root: Hash) -> ReadFuture<'_, Option<Vec<Hash>>>;
}

/// The ledger's connection. If a call fails with [`Broken`], the connection is dropped.
pub(crate) trait LedgerConnection {
    /// Begins a transaction.
    fn begin(&mut self) -> Result<Box<dyn LedgerTransaction + '_>, TransactionError>;

    /// After a failure: checks that the store is writable, and reads its state.
    fn read_back(&mut self) -> Result<(), Broken>;

    /// True if a transaction whose COMMIT failed on an earlier connection was committed; `None` if that is not known
    /// any more. The result is final.
    fn settle(&mut self, transaction: &TransactionId) -> Result<Option<bool>, Broken>;

    /// True if a reservation's time is over and it still holds copies.
    fn has_overdue_holds(&mut self) -> bool;

    /// Maintenance between transactions; called after each batch, and when none came for a while.
    fn tend(&mut self, is_idle: bool) -> Result<(), Broken>;

    /// Ends the work before the connection is closed.
    fn close(self: Box<Self>) -> Result<(), Broken>;
}

/// A transaction of the ledger: reads, commits and publishes, or is dropped and rolled back. After
/// [`TransactionError::Again`] it begins anew with [`LedgerTransaction::read`].
pub(crate) trait LedgerTransaction {
    /// Reads the newest facts. None of them changes before the commit.
    fn read(&mut self, wanted: &Wanted) -> Result<Facts, TransactionError>;

    /// Adds the facts that are wanted more than `first`; books of these that are locked elsewhere may be left out.
    fn read_more(&mut self, first: &Wanted, more: &Wanted, facts: &mut Facts) -> Result<(), TransactionError>;

    /// Writes the changes and commits; rolls back if there are none.
    fn commit(&mut self, changes: &Changes) -> Result<(), TransactionError>;

    /// Shows the committed changes to readers.
    fn publish(&mut self, changes: &Changes);
}

/// Old and new stock, price and held copies of a book.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BookChange {
    pub id: BookId,
    pub stock: (u32, u32),
    pub price_cents: (i64, i64),
    pub held: (u32, u32),
}

/// A whole book before, if it existed, and after, and the copies held of it.
#[derive(Clone, Debug)]
pub(crate) struct BookPut {
    pub before: Option<NewBook>,
    pub after: NewBook,
    pub held: u32,
}

/// Writes of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// By id.
    pub books: Vec<BookChange>,
    /// By id; none of them is in `books`.
    pub puts: Vec<BookPut>,
    /// Each book's in the order of numbers.
    pub entries: Vec<Entry>,
    /// Holders of the reservations that begin, in the order of their entries.
    pub holders: Vec<Holder>,
    /// The first entries of the reservations that end; some of them may begin here.
    pub ended: Vec<Entry>,
    /// An answer repeats the result of an earlier transaction, and must wait until that is as durable as this one.
    pub repeats: bool,
}

impl Changes {
    /// True if nothing must be committed.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && !self.repeats
    }
}

/// Reason why a connection is unusable.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

/// Reason why a transaction was not committed, or is in doubt.
#[derive(Debug)]
pub(crate) enum TransactionError {
    /// Another transaction was first; nothing was done, and this one can read and decide anew.
    Again,
    /// Nothing was done.
    Refused(Fault),
    /// Nothing was done, and the connection is dropped, which also rolls back.
    Undone(Fault, Broken),
    /// COMMIT failed: the outcome is unknown until settled, if that is possible.
    Unknown(Broken, Option<TransactionId>),
}

/// Identifies a transaction to later connections, which determine its outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionId {
    pub session: i64,
    pub batch: i64,
}

/// Number of kinds with a code of their own: the tables' first schema allows no others.
const CODES: usize = 8;

/// A kind's code in the column `kind` of either database. Books that are delisted or listed again are edited there, from
/// 1 to 0 or from 0 to 1. Reservations are adjustments with a quantity: the stock falls when they begin, and not when they end.
pub(super) fn code(kind: EntryKind) -> i64 {
    let kind = match kind {
        EntryKind::Delisted | EntryKind::Listed => EntryKind::Edited,
        EntryKind::Reserved | EntryKind::Released => EntryKind::Adjusted,
        kind => kind,
    };
    let index = EntryKind::ALL.iter().position(|other| *other == kind).unwrap_or_default();
    i64::try_from(index).unwrap_or_default() + 1
}

/// The kind with this code, `quantity`, `before` and `after`.
pub(crate) fn kind(code: i64, quantity: Option<i64>, before: Option<i64>, after: Option<i64>) -> Option<EntryKind> {
    let kind = EntryKind::ALL[..CODES].get(usize::try_from(code - 1).ok()?).copied()?;
    Some(match (kind, before, after) {
        (EntryKind::Edited, Some(1), Some(0)) => EntryKind::Delisted,
        (EntryKind::Edited, Some(0), Some(1)) => EntryKind::Listed,
        (EntryKind::Adjusted, ..) if quantity.is_some() && before > after => EntryKind::Reserved,
        (EntryKind::Adjusted, ..) if quantity.is_some() => EntryKind::Released,
        _ => kind,
    })
}
