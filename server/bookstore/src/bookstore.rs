//! The store's actions, shared by every transport, console and test.

use std::{
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use hosting::{Client, Share, Shares};
use tokio::sync::{Semaphore, watch};

use crate::{
    catalogue::{Book, Books, Catalogue, Shelf},
    domain::{BookId, Entry, Hold, HoldEnd, IdempotencyKey, Purchase, Receipt, Reservation},
    fault::{Fault, Limit},
    ledger::Ledger,
    metrics::{Levels, Metrics},
    money::Cents,
    settings::{Reads, Settings},
    store::{DatabaseError, OpenError, Page, SqliteStore, Store, Which, open_shared},
    witness,
};

/// Time of a reservation that names none.
const HOLD_SECONDS_DEFAULT: u32 = 900;

/// A handle to an open store; clones share it.
#[derive(Clone, Debug)]
pub struct Bookstore {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) ledger: Ledger,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: Arc<Metrics>,
    tails: Shares,
    streams: Shares,
    pub(crate) imports: Shares,
    pub(crate) sales: Shares,
    /// Summaries of sales that run at once, so that they leave connections to readers of the log.
    pub(crate) scans: Semaphore,
    /// Newest checkpoint that witnesses have signed.
    pub(crate) cosigned: witness::Newest,
    /// Set once, to end every [`Tail`] and the requests to witnesses.
    pub(crate) ending: watch::Sender<bool>,
}

/// Reason why a store cannot be opened. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] OpenError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The system cannot start a thread.
    #[error("cannot start the ledger's threads: {0}; raise the limit on processes")]
    Threads(io::Error),
}

/// A page and the start of the next.
#[derive(Clone, Debug)]
pub struct Paged<T, C> {
    /// The items of the page.
    pub items: T,
    /// `None` on the last page.
    pub next: Option<C>,
}

impl Bookstore {
    /// Opens the database of the settings, or else the file at `path`; creates either with the sample catalogue if it
    /// does not exist. Blocks.
    pub fn open(path: &Path, settings: Settings, metrics: Metrics) -> Result<Self, StartError> {
        let (shelf, metrics) = (Arc::new(Shelf::default()), Arc::new(metrics));
        let parts = (settings.clone(), Arc::clone(&shelf), Arc::clone(&metrics));
        let store: Arc<dyn Store> = match &settings.url {
            Some(url) => open_shared(url, parts.0, parts.1, parts.2)?,
            None => Arc::new(SqliteStore::open(path, parts.0, parts.1, parts.2)?),
        };
        let ledger = Ledger::start(Arc::clone(&store), settings.clone(), Arc::clone(&metrics));
        let ledger = ledger.map_err(StartError::Threads)?;
        let limits = &settings.limits;
        let (tails, streams) = (Shares::new(limits.log_tails.clone()), Shares::new(limits.search_streams.clone()));
        let (imports, sales) = (Shares::new(limits.imports.clone()), Shares::new(limits.sales.clone()));
        let (scans, ending) = (Semaphore::new(settings.read_pool.div_ceil(2)), watch::Sender::new(false));
        let cosigned = witness::Newest::new(settings.witnesses.len());
        let inner =
            Inner { settings, shelf, ledger, store, metrics, tails, streams, imports, sales, scans, cosigned, ending };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The catalogue in memory; `None` with reads from the database.
    pub fn catalogue(&self) -> Option<arc_swap::Guard<Arc<Catalogue>>> {
        (self.inner.settings.reads == Reads::Memory).then(|| self.inner.shelf.load())
    }

    /// One book.
    pub async fn lookup(&self, id: BookId) -> Result<Option<Arc<Book>>, Fault> {
        match self.inner.settings.reads {
            Reads::Memory => Ok(self.inner.shelf.load().get(id).cloned()),
            Reads::Database => self.inner.store.book(id).await,
        }
    }

    /// Buys `quantity` copies, all or none; a purchase in a [`Receipt`] is on disk. If that is impossible by
    /// `deadline`, the purchase is refused.
    pub async fn buy(
        &self,
        book: BookId,
        quantity: i32,
        key: Option<IdempotencyKey>,
        deadline: Option<Instant>,
    ) -> Result<Receipt, Fault> {
        let quantity = self.quantity(quantity)?;
        self.purchase(Purchase { book, quantity, key, agreed: None, deadline }).await
    }

    /// Buys one copy as [`Bookstore::buy`], at this price alone: at another one it fails with
    /// [`Fault::PriceChanged`]. A key that was used before returns its first answer, even if the price has changed since.
    pub async fn buy_one_at(
        &self,
        book: BookId,
        price: Cents,
        key: Option<IdempotencyKey>,
        deadline: Option<Instant>,
    ) -> Result<Receipt, Fault> {
        self.purchase(Purchase { book, quantity: 1, key, agreed: Some(price), deadline }).await
    }

    async fn purchase(&self, purchase: Purchase) -> Result<Receipt, Fault> {
        let receipt = self.inner.ledger.purchase(purchase).await?;
        self.inner.metrics.answered(&receipt);
        Ok(receipt)
    }

    /// Holds `quantity` copies for `seconds` for this client, all or none, under this key; the copies of a [`Reservation`] are
    /// held on disk.
    pub async fn hold(
        &self,
        book: BookId,
        quantity: i32,
        key: IdempotencyKey,
        seconds: Option<i32>,
        client: &Client,
        deadline: Option<Instant>,
    ) -> Result<Reservation, Fault> {
        let (quantity, seconds) = (self.quantity(quantity)?, self.hold_seconds(seconds)?);
        let hold = Hold { book, quantity, key, holder: client.into(), seconds, deadline };
        let held = self.inner.ledger.hold(hold).await;
        self.answered(held)
    }

    /// Buys the copies of a reservation, or gives them back.
    pub async fn end_hold(
        &self,
        key: IdempotencyKey,
        confirms: bool,
        deadline: Option<Instant>,
    ) -> Result<Reservation, Fault> {
        let ended = self.inner.ledger.end_hold(HoldEnd { key, confirms, deadline }).await;
        self.answered(ended)
    }

    fn answered(&self, reservation: Result<Reservation, Fault>) -> Result<Reservation, Fault> {
        match &reservation {
            Ok(reservation) => self.inner.metrics.answered_hold(reservation),
            Err(Fault::Limit { limit: Limit::Reservations, .. }) => self.inner.metrics.refused(Limit::Reservations),
            Err(Fault::LostEnd { number }) => {
                tracing::error!(number, "the log lacks the end of the reservation of this entry; run `quire verify`");
            }
            Err(_) => {}
        }
        reservation
    }

    /// Checks the seconds of a reservation; `None` is the default.
    fn hold_seconds(&self, seconds: Option<i32>) -> Result<u32, Fault> {
        let most = self.inner.settings.limits.reservation_seconds.get().try_into().unwrap_or(u32::MAX);
        let Some(seconds) = seconds else { return Ok(HOLD_SECONDS_DEFAULT.min(most)) };
        let wanted = u32::try_from(seconds).ok().filter(|seconds| (1..=most).contains(seconds));
        let want = || format!("a whole number from 1 to {most}, the server's limit limits.reservation_seconds");
        wanted.ok_or_else(|| Fault::invalid("seconds", seconds, want()))
    }

    /// Checks the copies of one purchase.
    pub(crate) fn quantity(&self, copies: i32) -> Result<u32, Fault> {
        let most = self.inner.settings.limits.quantity.get().try_into().unwrap_or(u32::MAX);
        let wanted = u32::try_from(copies).ok().filter(|copies| (1..=most).contains(copies));
        let want = || format!("a whole number from 1 to {most}, the server's limit limits.quantity");
        wanted.ok_or_else(|| Fault::invalid("quantity", copies, want()))
    }

    /// Listed books by id; a size of 0 is the largest page.
    pub async fn list(&self, after: Option<BookId>, size: usize) -> Result<Paged<Books, BookId>, Fault> {
        let size = self.page_size(size)?;
        let items: Books = match self.inner.settings.reads {
            Reads::Memory => self.inner.shelf.load().after(after).take(size).cloned().collect(),
            Reads::Database => self.inner.store.books(Which::Listed, after, size).await?,
        };
        let next = items.last().filter(|_| items.len() == size).map(|book| book.id());
        Ok(Paged { items, next })
    }

    /// A page of the transaction log; a size of 0 is the largest page.
    pub async fn log(&self, page: Page, size: usize) -> Result<Paged<Vec<Entry>, i64>, Fault> {
        let size = self.page_size(size)?;
        let items = self.inner.store.log(page, size).await?;
        let next = items.last().filter(|_| items.len() == size).map(|entry| entry.number);
        Ok(Paged { items, next })
    }

    /// Follows the log from the entry after `after`, or from now, for this client.
    pub fn tail(&self, after: Option<i64>, client: Client) -> Result<Tail, Fault> {
        let share = self.inner.tails.take(client);
        let share = share.ok_or_else(|| self.exceeded(Limit::LogTails, self.inner.settings.limits.log_tails.get()))?;
        let newest = self.inner.ledger.watch();
        let cursor = after.unwrap_or_else(|| *newest.borrow());
        Ok(Tail { store: self.clone(), newest, cursor, _share: share })
    }

    /// Number of listed books.
    pub fn books(&self) -> usize {
        self.inner.shelf.load().len()
    }

    /// Current usage and state.
    pub fn levels(&self) -> Levels {
        Levels {
            purchases_queued: self.inner.ledger.queued(),
            purchases_queued_max: self.inner.settings.limits.purchases_queued,
            books: self.books(),
            log_number: *self.inner.ledger.watch().borrow(),
            healthy: *self.healthy().borrow(),
            age: self.inner.store.age(),
            replicas: self.inner.store.replicas(),
        }
    }

    /// Current problem, for operators; `None` if there is none.
    pub fn trouble(&self) -> Option<String> {
        if *self.healthy().borrow() {
            return None;
        }
        Some(match self.inner.store.age() {
            None => {
                let reason = self.inner.ledger.trouble().map_or_else(String::new, |reason| format!(": {reason}"));
                format!("the store failed and is being read back; purchases are refused{reason}")
            }
            Some(age) => format!(
                "{}; purchases are refused, and reads are {:.1} s old",
                self.inner.store.while_failed().state(),
                age.as_secs_f64()
            ),
        })
    }

    /// True while purchases are accepted: false from a failure of the store until it has been read back.
    pub fn healthy(&self) -> watch::Receiver<bool> {
        self.inner.ledger.healthy()
    }

    /// Ends every [`Tail`], so that a drain does not wait for callers that follow the log.
    pub fn end_tails(&self) {
        self.inner.ending.send_replace(true);
    }

    /// Commits what is queued and closes the file; false if it takes longer than `timeout` or the file has failed. Blocks.
    pub fn close(&self, timeout: Duration) -> bool {
        self.inner.ledger.close(timeout) && (*self.healthy().borrow() || self.inner.store.age().is_some())
    }

    /// Page size for a requested number of items; 0 is the largest page.
    pub(crate) fn page_size(&self, asked: usize) -> Result<usize, Fault> {
        let most = self.inner.settings.limits.page_size.get();
        self.within(Limit::PageSize, asked, most)?;
        Ok(if asked == 0 { most } else { asked })
    }

    pub(crate) fn within(&self, limit: Limit, asked: usize, at: usize) -> Result<(), Fault> {
        if asked <= at {
            return Ok(());
        }
        Err(self.exceeded(limit, at))
    }

    /// Takes a permit for a search stream.
    pub(crate) fn stream_share(&self, client: Client) -> Result<Share, Fault> {
        let share = self.inner.streams.take(client);
        share.ok_or_else(|| self.exceeded(Limit::SearchStreams, self.inner.settings.limits.search_streams.get()))
    }

    pub(crate) fn exceeded(&self, limit: Limit, at: usize) -> Fault {
        self.inner.metrics.refused(limit);
        Fault::Limit { limit, at: u64::try_from(at).unwrap_or(u64::MAX) }
    }
}

/// Follows the log until dropped.
#[derive(Debug)]
pub struct Tail {
    store: Bookstore,
    newest: watch::Receiver<i64>,
    cursor: i64,
    /// Its permit.
    _share: Share,
}

impl Tail {
    /// Waits for entries and returns at least one; `None` when the store is closing. Returns one page at a time, which
    /// bounds the memory of a slow reader.
    pub async fn next(&mut self) -> Option<Result<Vec<Entry>, Fault>> {
        let cursor = self.cursor;
        let mut ending = self.store.inner.ending.subscribe();
        tokio::select! {
            newest = self.newest.wait_for(|newest| *newest > cursor) => drop(newest.ok()?),
            _ = ending.wait_for(|ending| *ending) => return None,
        }
        let page = self.store.log(Page::After(cursor), 0).await;
        Some(page.map(|page| {
            self.cursor = page.items.last().map_or(cursor, |entry| entry.number);
            page.items
        }))
    }
}
