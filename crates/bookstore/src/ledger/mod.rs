//! The ledger: sells, restocks and prices, and acknowledges what is on disk.
//!
//! Callers put jobs into a bounded queue; a worker thread takes all that wait, runs them in one transaction and
//! answers after COMMIT has returned (group commit; `DeWitt` et al., 1984). With [`Commit::Each`] several workers
//! take one job at a time. Everything in here runs on threads of its own; a caller only awaits the answer.

mod batch;
mod courier;
mod keys;
mod mend;
mod queue;
mod worker;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};

use self::{
    courier::Couriers,
    keys::Keys,
    queue::{Queue, Refusal},
};
use crate::{
    catalogue::{Book, Catalogue, Shelf},
    domain::{BookId, PriceChange, Purchase, Receipt, Restocked},
    fault::{Fault, Limit, Unavailable},
    metrics::Metrics,
    money::Cents,
    settings::{Commit, Settings},
    store::{self, OpenError, Role, Writer},
};

/// Carries one answer back.
type Reply<T> = oneshot::Sender<Result<T, Fault>>;

/// Something to do in a transaction, and where its answer is awaited.
struct Job {
    task: Task,
    courier: usize,
}

/// Something to do in a transaction.
enum Task {
    Purchase(Purchase, Reply<Receipt>),
    SetPrice(BookId, Cents, Reply<Option<PriceChange>>),
    Restock(u32, Reply<Restocked>),
}

impl Task {
    /// Whether the caller gave up, as at the end of its deadline; it is not charged for what has not begun.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Purchase(_, reply) => reply.is_closed(),
            Self::SetPrice(_, _, reply) => reply.is_closed(),
            Self::Restock(_, reply) => reply.is_closed(),
        }
    }

    /// A caller that went away needs no answer.
    fn answer(self, decision: Result<Decision, Fault>) {
        match (self, decision) {
            (Self::Purchase(_, reply), Ok(Decision::Purchase(result))) => drop(reply.send(result)),
            (Self::SetPrice(_, _, reply), Ok(Decision::Price(change))) => drop(reply.send(Ok(change))),
            (Self::Restock(_, reply), Ok(Decision::Restocked(done))) => drop(reply.send(Ok(done))),
            (task, Ok(_)) => task.answer(Err(Fault::OutcomeUnknown)),
            (Self::Purchase(_, reply), Err(fault)) => drop(reply.send(Err(fault))),
            (Self::SetPrice(_, _, reply), Err(fault)) => drop(reply.send(Err(fault))),
            (Self::Restock(_, reply), Err(fault)) => drop(reply.send(Err(fault))),
        }
    }
}

/// What became of a job inside a transaction.
enum Decision {
    Purchase(Result<Receipt, Fault>),
    Price(Option<PriceChange>),
    Restocked(Restocked),
    /// Nothing: no one waits for it.
    Abandoned,
}

/// Why a transaction did not come to its end.
#[derive(Debug)]
enum Trouble {
    Sqlite(rusqlite::Error),
    /// The file was changed without a trace in the log.
    Stale,
    /// There are no more numbers.
    LogFull,
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// What the file holds, as far as this process knows. Only the holder of the file's write lock changes it.
struct State {
    last_number: i64,
    keys: Keys,
}

impl State {
    /// Reads everything and shows it to readers.
    fn load(writer: &mut Writer<'_>, shared: &Shelf, settings: &Settings) -> rusqlite::Result<Self> {
        let mut topics = std::collections::HashSet::<Arc<str>>::new();
        let mut books = Vec::new();
        writer.each_book(|book| {
            let topic = topics.get(&*book.topic).map_or_else(|| Arc::from(&*book.topic), Arc::clone);
            topics.insert(Arc::clone(&topic));
            books.push(Arc::new(Book::new(book.id, book.title, topic, book.stock, book.price)));
        })?;
        let keys = Keys::load(writer, settings.keys_in_memory)?;
        // A number that the index points to is not given again, even if its row is missing.
        let last_number = writer.last_number()?.max(keys.indexed_up_to());
        shared.replace(Catalogue::from_ordered(books));
        Ok(Self { last_number, keys })
    }
}

struct Shared {
    path: PathBuf,
    settings: Settings,
    queue: Queue<Job>,
    shelf: Arc<Shelf>,
    state: Mutex<State>,
    /// Held by the thread that has a transaction; when one last waited in vain for the file's write lock.
    turn: Mutex<Option<Instant>>,
    /// Set when the database file lost pages, until all of it has been written again. No checkpoint is made meanwhile:
    /// one that succeeds would end with the WAL being given up.
    lost_pages: AtomicBool,
    last_number: watch::Sender<i64>,
    /// False while a failed file has not been read back.
    sound: watch::Sender<bool>,
    metrics: Arc<Metrics>,
    couriers: Couriers,
}

/// The handle; closing or dropping it ends the workers after what is queued.
pub struct Ledger {
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Opens the file, making it with the sample catalogue if there is none, loads the catalogue into `shelf`,
    /// and starts the workers.
    pub fn open(path: &Path, settings: Settings, shelf: Arc<Shelf>, metrics: Arc<Metrics>) -> Result<Self, OpenError> {
        let failed = |reason| OpenError::from_sqlite(path, &reason);
        let opened = store::open(path, Role::Owner, &settings)?;
        if opened.created {
            tracing::info!(path = %path.display(), "made a store with the sample catalogue");
        }
        opened.connection.execute_batch("BEGIN").map_err(failed)?;
        let mut writer = Writer::new(&opened.connection).map_err(failed)?;
        for wrong in writer.inspect().map_err(failed)? {
            tracing::error!(path = %path.display(), "{wrong}");
        }
        let state = State::load(&mut writer, &shelf, &settings).map_err(failed)?;
        drop(writer);
        let workers = match settings.commit {
            Commit::Group => 1,
            Commit::Each => settings.write_pool.max(1),
        };
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            queue: Queue::new(settings.limits.purchases_queued),
            settings,
            shelf,
            last_number: watch::Sender::new(state.last_number),
            sound: watch::Sender::new(true),
            state: Mutex::new(state),
            turn: Mutex::default(),
            lost_pages: AtomicBool::new(false),
            metrics,
            couriers: Couriers::default(),
        });
        let start = |place| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("ledger-{place}")).spawn(move || worker::run(&shared))
        };
        let threads = (0..workers).map(start).collect::<Result<Vec<_>, _>>().map_err(OpenError::Threads)?;
        Ok(Self { shared, workers: Mutex::new(threads) })
    }

    /// From now on answers cross to this runtime, unless they go to a thread of their own.
    pub fn answer_on(&self, runtime: &Handle) {
        self.shared.couriers.employ(runtime);
    }

    /// From now on what this thread asks is answered here, by a task of the single-threaded runtime that it runs.
    pub fn answer_here(&self) {
        self.shared.couriers.employ_here(&Handle::current());
    }

    /// Buys; the answer means that it is on disk.
    pub async fn purchase(&self, purchase: Purchase) -> Result<Receipt, Fault> {
        let (reply, answer) = oneshot::channel();
        self.submit(Task::Purchase(purchase, reply))?;
        wait(answer).await
    }

    /// Sets a book's price; `None` when there is no such book.
    pub async fn set_price(&self, book: BookId, price: Cents) -> Result<Option<PriceChange>, Fault> {
        let (reply, answer) = oneshot::channel();
        self.submit(Task::SetPrice(book, price, reply))?;
        wait(answer).await
    }

    /// Raises every book with less to `amount`, some books a transaction: a crash in the middle leaves some
    /// raised and each of them logged, and doing it again does the rest.
    pub async fn restock(&self, amount: u32) -> Result<Restocked, Fault> {
        let (reply, answer) = oneshot::channel();
        self.submit(Task::Restock(amount, reply))?;
        wait(answer).await
    }

    /// The number of the newest committed entry, and a way to wait for newer ones.
    pub fn watch(&self) -> watch::Receiver<i64> {
        self.shared.last_number.subscribe()
    }

    /// Whether purchases are taken: false from a failure until the file has been read back.
    pub fn sound(&self) -> watch::Receiver<bool> {
        self.shared.sound.subscribe()
    }

    /// Jobs that wait.
    pub fn queued(&self) -> usize {
        self.shared.queue.len()
    }

    fn submit(&self, task: Task) -> Result<(), Fault> {
        let job = Job { task, courier: courier::here() };
        self.shared.queue.push(job).map_err(|(refusal, _)| match refusal {
            Refusal::Full => {
                let at = self.shared.settings.limits.purchases_queued;
                self.shared.metrics.refused(Limit::PurchasesQueued);
                Fault::Limit { limit: Limit::PurchasesQueued, at: u64::try_from(at).unwrap_or(u64::MAX) }
            }
            Refusal::Suspended => Fault::Unavailable(Unavailable::Recovering),
            Refusal::Closed => Fault::Unavailable(Unavailable::Closing),
        })
    }

    /// Commits what is queued, empties the WAL into the file and closes it. False when that took longer than
    /// `patience`; everything acknowledged is on disk even then. Blocks.
    pub fn close(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.shared.queue.close();
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        // A thread cannot be joined with a deadline; one that waits for all of them can be waited for.
        let (done, all_done) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for worker in workers {
                // A worker that panicked has said so on stderr.
                drop(worker.join());
            }
            // Nobody waits any more when the deadline is over.
            let _ = done.send(());
        });
        all_done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

async fn wait<T>(answer: oneshot::Receiver<Result<T, Fault>>) -> Result<T, Fault> {
    // A worker drops a reply only if it dies in the middle of a transaction.
    answer.await.unwrap_or(Err(Fault::OutcomeUnknown))
}
