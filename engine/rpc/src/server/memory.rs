//! Account of the memory that peers make servers hold: answers waiting for their reader, incomplete messages, and the
//! rest of the process.
//!
//! A connection charges what it holds after each turn, in steps, so that one whose answers leave at once never touches
//! the account. While the account is full, new work is refused and the largest connection without progress is cut.
//!
//! Implements: RFC 9113 section 10.5 (denial-of-service considerations).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use atomic_waker::AtomicWaker;
use tokio::time::Instant;

/// Smaller changes of what a connection holds are not charged.
const STEP_BYTES: usize = 16 * 1024;
/// A connection makes progress if it moves an eighth of its bytes, and at least this many, in the time below.
const PROGRESS_BYTES_MIN: usize = 64 * 1024;
const PROGRESS_TIME: Duration = Duration::from_secs(1);
/// Least time between two cuts, in which the first one's memory is freed.
const CUT_INTERVAL: Duration = Duration::from_millis(10);

/// Reason with which a cut connection ends.
pub(super) const CUT: &str = "cut: the server's memory was full, and of those that made no progress it held most";

/// An account of memory. Clones are the same account, which several servers may share.
#[derive(Clone)]
pub struct Memory(Arc<Account>);

struct Account {
    buffers_max: usize,
    bytes_max: usize,
    buffers: AtomicUsize,
    /// Memory of the process beside the buffers. Negative if answers share memory, since each counts it.
    others: AtomicIsize,
    holders: Mutex<Holders>,
}

#[derive(Default)]
struct Holders {
    all: Vec<Weak<Holder>>,
    cut_at: Option<Instant>,
}

impl Holders {
    /// Removes dropped holders before growing, so that there are never many more than live ones.
    fn add(&mut self, holder: &Arc<Holder>) {
        if self.all.len() == self.all.capacity() {
            self.all.retain(|known| known.strong_count() > 0);
        }
        self.all.push(Arc::downgrade(holder));
    }
}

/// A connection that holds, or has held, enough to be charged.
struct Holder {
    bytes: AtomicUsize,
    cut: AtomicBool,
    connection: AtomicWaker,
    progress: Mutex<Progress>,
}

/// Bytes a connection has moved since a time.
struct Progress {
    since: Instant,
    moved_before: u64,
}

impl Memory {
    /// An account that is full when connection buffers reach `buffers_max` bytes, or the whole `bytes_max`.
    pub fn new(buffers_max: usize, bytes_max: usize) -> Self {
        let (buffers, others) = (AtomicUsize::new(0), AtomicIsize::new(0));
        Self(Arc::new(Account { buffers_max, bytes_max, buffers, others, holders: Mutex::default() }))
    }

    /// Bytes in connection buffers. Bytes shared by several answers count for each.
    pub fn buffers(&self) -> usize {
        self.0.buffers.load(Relaxed)
    }

    /// Total: the process's memory at the last measurement, plus the change of the buffers since.
    pub fn total(&self) -> usize {
        self.buffers().saturating_add_signed(self.0.others.load(Relaxed))
    }

    /// Sets the measured memory of the process, buffers included. Before the first call only buffers count.
    pub fn set_measured(&self, bytes: usize) {
        let signed = |bytes: usize| isize::try_from(bytes).unwrap_or(isize::MAX);
        self.0.others.store(signed(bytes) - signed(self.buffers()), Relaxed);
    }

    /// True if new work should be refused.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.buffers() >= self.0.buffers_max || self.total() >= self.0.bytes_max
    }

    /// The limit that was reached, for the refusal's text.
    pub(super) fn limit(&self) -> usize {
        if self.buffers() >= self.0.buffers_max { self.0.buffers_max } else { self.0.bytes_max }
    }

    /// Cuts the largest connection without progress. Call it when the account is full.
    #[cold]
    pub(super) fn relieve(&self) {
        let now = Instant::now();
        let mut holders = lock(&self.0.holders);
        if holders.cut_at.is_some_and(|at| now.duration_since(at) < CUT_INTERVAL) {
            return;
        }
        holders.cut_at = Some(now);
        holders.all.retain(|holder| holder.strong_count() > 0);
        let stuck = holders.all.iter().filter_map(Weak::upgrade).filter(|holder| {
            !holder.cut.load(Relaxed) && now.duration_since(lock(&holder.progress).since) >= PROGRESS_TIME
        });
        if let Some(largest) = stuck.max_by_key(|holder| holder.bytes.load(Relaxed)) {
            largest.cut.store(true, Relaxed);
            largest.connection.wake();
        }
    }

    pub(super) fn charge(&self) -> Charge {
        Charge { memory: self.clone(), bytes: 0, holder: None }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} of {} bytes in buffers)", self.buffers(), self.0.buffers_max)
    }
}

/// A connection's part of an account, released on drop.
pub(super) struct Charge {
    memory: Memory,
    bytes: usize,
    holder: Option<Arc<Holder>>,
}

impl Charge {
    /// Charges the bytes the connection holds now. `moved` counts all bytes it has read and written so far.
    #[inline]
    pub(super) fn set(&mut self, bytes: usize, moved: u64, task: &Waker) {
        if bytes.abs_diff(self.bytes) >= STEP_BYTES || (bytes == 0 && self.bytes > 0) {
            self.change(bytes);
        }
        if self.bytes > 0 {
            self.note(moved, task);
        }
    }

    fn change(&mut self, bytes: usize) {
        let account = &self.memory.0;
        if bytes > self.bytes {
            account.buffers.fetch_add(bytes - self.bytes, Relaxed);
        } else {
            account.buffers.fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
        let holder = self.holder.get_or_insert_with(|| {
            let progress = Mutex::new(Progress { since: Instant::now(), moved_before: 0 });
            let (cut, connection) = (AtomicBool::new(false), AtomicWaker::new());
            let holder = Arc::new(Holder { bytes: AtomicUsize::new(0), cut, connection, progress });
            lock(&account.holders).add(&holder);
            holder
        });
        holder.bytes.store(bytes, Relaxed);
    }

    fn note(&self, moved: u64, task: &Waker) {
        let Some(holder) = &self.holder else { return };
        let mut progress = lock(&holder.progress);
        let wanted = (self.bytes / 8).max(PROGRESS_BYTES_MIN) as u64;
        if moved.saturating_sub(progress.moved_before) >= wanted {
            *progress = Progress { since: Instant::now(), moved_before: moved };
        }
        drop(progress);
        holder.connection.register(task);
    }

    /// True if the connection must end.
    #[inline]
    pub(super) fn is_cut(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.cut.load(Relaxed))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.change(0);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[tokio::test(start_paused = true)]
    async fn largest_connection_without_progress_is_cut_and_gives_its_bytes_back() {
        let memory = Memory::new(10 * MIB, usize::MAX);
        let [mut small, mut large, mut moving] = [(); 3].map(|()| memory.charge());
        let task = Waker::noop();
        small.set(MIB, 0, task);
        large.set(4 * MIB, 0, task);
        moving.set(5 * MIB, 0, task);
        assert!(memory.is_full() && memory.buffers() == 10 * MIB);
        memory.relieve();
        assert!(![&small, &large, &moving].iter().any(|charge| charge.is_cut()), "all had less than a second");
        tokio::time::advance(PROGRESS_TIME).await;
        moving.set(5 * MIB, MIB as u64, task);
        small.set(MIB, 1000, task);
        memory.relieve();
        assert!(large.is_cut() && !moving.is_cut() && !small.is_cut());
        drop(large);
        assert!(!memory.is_full() && memory.buffers() == 6 * MIB);
        drop((small, moving));
        assert_eq!(memory.buffers(), 0);
    }

    #[test]
    fn connections_that_are_gone_are_forgotten() {
        let memory = Memory::new(10 * MIB, usize::MAX);
        let mut kept = memory.charge();
        kept.set(MIB, 0, Waker::noop());
        for _ in 0..10_000 {
            memory.charge().set(MIB, 0, Waker::noop());
        }
        assert!(lock(&memory.0.holders).all.len() < 16);
        assert_eq!(memory.buffers(), MIB);
    }

    #[test]
    fn small_changes_are_not_charged_and_the_rest_of_the_process_counts() {
        let memory = Memory::new(MIB, 2 * MIB);
        let mut charge = memory.charge();
        charge.set(STEP_BYTES - 1, 0, Waker::noop());
        assert_eq!(memory.buffers(), 0);
        charge.set(STEP_BYTES, 0, Waker::noop());
        charge.set(1, 0, Waker::noop());
        assert_eq!(memory.buffers(), STEP_BYTES);
        memory.set_measured(MIB);
        charge.set(MIB / 2, 0, Waker::noop());
        assert_eq!(memory.total(), MIB + MIB / 2 - STEP_BYTES);
        memory.set_measured(MIB / 4);
        assert_eq!((memory.buffers(), memory.total()), (MIB / 2, MIB / 4), "the answers share what they count");
        memory.set_measured(2 * MIB);
        assert!(memory.is_full() && memory.limit() == 2 * MIB);
        charge.set(0, 0, Waker::noop());
        assert_eq!(memory.buffers(), 0);
    }
}
