//! Account of the memory that servers hold for peers (answers waiting for their reader, incomplete messages) and of the
//! rest of the process.
//!
//! A connection charges its bytes after each turn, in steps, so that one whose answers leave at once never touches the
//! account. Large buffers that several answers share count once. When the account of buffers is full, the client that
//! holds most loses its largest connections, whatever their age, until there is room. So new work is refused only to a
//! connection whose own part is too large, or while the whole process is at its limit.
//!
//! Implements: RFC 9113 section 10.5 (denial-of-service considerations).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use atomic_waker::AtomicWaker;
use bytes::Bytes;

use super::observer::Refusal;
use quire_net::Client;

/// Smaller changes of a connection's bytes are not charged.
const STEP_BYTES: usize = 16 * 1024;
/// Shared buffers of at least this size count once; smaller ones count for each answer.
pub(super) const SHARED_BYTES_MIN: usize = 64 * 1024;
/// From half full on, a connection that holds this many times the free bytes gets no new work.
const TIMES_FREE: usize = 3;
/// Connections that hold less are not cut when the limit of the whole process is reached.
const LARGE_BYTES: usize = 1024 * 1024;

/// Close reason of a cut connection.
pub const CUT: &str = "cut: limits.buffer_bytes or limits.memory_bytes was reached, and its client held most";

/// An account of memory. Clones are the same account, which several servers may share.
#[derive(Clone)]
pub struct Memory(Arc<Account>);

struct Account {
    buffers_max: usize,
    bytes_max: usize,
    buffers: AtomicUsize,
    /// Bytes of cut connections that have not ended yet.
    leaving: AtomicUsize,
    /// The process's memory at the last measurement, less the buffers then; may be negative.
    others: AtomicIsize,
    holders: Mutex<Vec<Weak<Holder>>>,
    /// Address and length of shared bytes, with the number of answers that hold them.
    shared: Mutex<HashMap<(usize, usize), usize>>,
}

/// A connection, or a call on one that hyper or another library manages.
struct Holder {
    held: Mutex<HeldBytes>,
    /// Written while `held` is locked.
    is_cut: AtomicBool,
    connection: AtomicWaker,
}

struct HeldBytes {
    client: Client,
    /// Bytes that are not shared.
    own: usize,
    /// Bytes that others may hold as well.
    shared: usize,
    is_listed: bool,
}

impl Memory {
    /// An account that is full when connection buffers reach `buffers_max` bytes, or the whole `bytes_max`.
    pub fn new(buffers_max: usize, bytes_max: usize) -> Self {
        Self(Arc::new(Account {
            buffers_max,
            bytes_max,
            buffers: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
            others: AtomicIsize::new(0),
            holders: Mutex::default(),
            shared: Mutex::default(),
        }))
    }

    /// Bytes in the buffers of connections, without those of connections that are being cut.
    #[inline]
    pub fn buffers(&self) -> usize {
        self.0.buffers.load(Relaxed).saturating_sub(self.0.leaving.load(Relaxed))
    }

    /// Limit of the buffers.
    pub fn buffers_max(&self) -> usize {
        self.0.buffers_max
    }

    /// Total: the process's memory at the last measurement, plus the change of the buffers since.
    #[inline]
    pub fn total(&self) -> usize {
        self.buffers().saturating_add_signed(self.0.others.load(Relaxed))
    }

    /// Limit of the total.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// Sets the measured memory of the process, buffers included. Before the first call only buffers count.
    pub fn set_measured(&self, bytes: usize) {
        let signed = |bytes: usize| isize::try_from(bytes).unwrap_or(isize::MAX);
        self.0.others.store(signed(bytes) - signed(self.0.buffers.load(Relaxed)), Relaxed);
    }

    /// True if the total has reached its limit.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        self.total() >= self.0.bytes_max
    }

    /// True if new work may have to be refused.
    #[inline]
    pub(super) fn is_pressed(&self) -> bool {
        self.buffers() >= self.0.buffers_max / 2 || self.is_exhausted()
    }

    /// The limit that refuses new work to a connection with `held_bytes`, if any. Makes room first if there is none.
    #[inline]
    pub(super) fn refusal(&self, held_bytes: usize) -> Option<Refusal> {
        if self.is_pressed() { self.refusal_pressed(held_bytes) } else { None }
    }

    #[cold]
    fn refusal_pressed(&self, held_bytes: usize) -> Option<Refusal> {
        self.reclaim();
        if self.is_exhausted() {
            return Some(Refusal::Memory);
        }
        let free = self.0.buffers_max.saturating_sub(self.buffers());
        (held_bytes >= SHARED_BYTES_MIN && held_bytes / TIMES_FREE >= free).then_some(Refusal::BufferBytes)
    }

    /// Cuts the largest connections of the clients that hold most, until there is some room.
    fn reclaim(&self) {
        let is_full = || self.buffers() >= self.0.buffers_max;
        if !is_full() && !self.is_exhausted() {
            return;
        }
        let mut listed = lock(&self.0.holders);
        listed.retain(|holder| holder.strong_count() > 0);
        // Another thread may have made room meanwhile.
        let (mut excess, bytes_min) = if is_full() {
            ((self.buffers() + 1).saturating_sub(self.0.buffers_max / 16 * 15), 1)
        } else {
            ((self.total() + 1).saturating_sub(self.0.bytes_max), LARGE_BYTES)
        };
        let mut clients: HashMap<Client, Part> = HashMap::new();
        for holder in listed.iter().filter_map(Weak::upgrade) {
            let held = lock(&holder.held);
            let (bytes, client) = (held.own + held.shared, held.client.clone());
            drop(held);
            if bytes >= bytes_min && !holder.is_cut.load(Relaxed) {
                let part = clients.entry(client).or_default();
                part.bytes += bytes;
                part.holders.push((bytes, holder));
            }
        }
        for part in clients.values_mut() {
            part.holders.sort_unstable_by_key(|(bytes, _)| *bytes);
        }
        while excess > 0 {
            let Some(part) = clients.values_mut().max_by_key(|part| part.bytes) else { return };
            let Some((bytes, holder)) = part.holders.pop() else { return };
            part.bytes -= bytes;
            excess = excess.saturating_sub(bytes);
            self.cut(&holder);
        }
    }

    fn cut(&self, holder: &Holder) {
        let held = lock(&holder.held);
        holder.is_cut.store(true, Relaxed);
        self.0.leaving.fetch_add(held.own + held.shared, Relaxed);
        drop(held);
        holder.connection.wake();
    }

    /// The charge of a connection with this address, or of a call on it.
    pub fn charge(&self, address: Option<SocketAddr>) -> Charge {
        let client = Client::at(address.map(|address| address.ip()));
        let held = Mutex::new(HeldBytes { client, own: 0, shared: 0, is_listed: false });
        let holder = Holder { held, is_cut: AtomicBool::new(false), connection: AtomicWaker::new() };
        Charge { memory: self.clone(), bytes: 0, holder: Arc::new(holder) }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} of {} bytes in buffers)", self.buffers(), self.0.buffers_max)
    }
}

/// A client's bytes and connections.
#[derive(Default)]
struct Part {
    bytes: usize,
    holders: Vec<(usize, Arc<Holder>)>,
}

/// A connection's part of an account, released on drop.
pub struct Charge {
    memory: Memory,
    /// Bytes charged last.
    bytes: usize,
    holder: Arc<Holder>,
}

/// Counts bytes that a connection may share with others.
pub(crate) struct Lender {
    memory: Memory,
    holder: Arc<Holder>,
}

impl Lender {
    /// Counts `bytes` for the connection until the last copy is dropped.
    pub(super) fn lend(&self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(SharedBytes::new(self.memory.clone(), Arc::clone(&self.holder), bytes))
    }
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lender")
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} bytes)", self.bytes)
    }
}

impl Charge {
    /// Charges the connection's current bytes whenever `future` has to wait; `None` if the connection must end, because
    /// its client holds most and the account is full.
    pub async fn unless_cut<F: Future>(&mut self, bytes: usize, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            self.set(bytes, cx.waker());
            if self.is_cut() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    /// A lender for the same connection.
    pub(super) fn lender(&self) -> Lender {
        Lender { memory: self.memory.clone(), holder: Arc::clone(&self.holder) }
    }

    /// Sets the client of the connection's calls, known better than by its address.
    pub(super) fn belongs_to(&self, client: &Client) {
        let mut held = lock(&self.holder.held);
        if held.client != *client {
            held.client = client.clone();
        }
    }

    /// Charges the connection's current bytes without the shared ones.
    #[inline]
    pub(super) fn set(&mut self, bytes: usize, task: &Waker) {
        if bytes.abs_diff(self.bytes) >= STEP_BYTES || (bytes == 0 && self.bytes > 0) {
            self.change(bytes);
        }
        if self.bytes > 0 {
            self.holder.connection.register(task);
        }
    }

    /// Like [`Charge::set`], for a connection that shares bytes.
    #[inline]
    pub(super) fn set_with_shared(&mut self, bytes: usize, task: &Waker) {
        self.list();
        self.holder.connection.register(task);
        self.set(bytes, task);
    }

    fn list(&self) {
        let mut held = lock(&self.holder.held);
        if !std::mem::replace(&mut held.is_listed, true) {
            drop(held);
            let mut listed = lock(&self.memory.0.holders);
            // Removes ended connections before the list would grow, so that it stays near the number of live ones.
            if listed.len() == listed.capacity() {
                listed.retain(|known| known.strong_count() > 0);
            }
            listed.push(Arc::downgrade(&self.holder));
        }
    }

    fn change(&mut self, bytes: usize) {
        self.list();
        let account = &self.memory.0;
        let mut held = lock(&self.holder.held);
        let more = bytes.wrapping_sub(std::mem::replace(&mut held.own, bytes));
        // A decrease wraps around.
        account.buffers.fetch_add(more, Relaxed);
        if self.holder.is_cut.load(Relaxed) {
            account.leaving.fetch_add(more, Relaxed);
        }
        drop(held);
        if std::mem::replace(&mut self.bytes, bytes) < bytes {
            self.memory.reclaim();
        }
    }

    /// True if the connection must end.
    #[inline]
    pub(super) fn is_cut(&self) -> bool {
        self.holder.is_cut.load(Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.change(0);
        }
    }
}

/// Bytes of an answer that others may hold as well.
struct SharedBytes {
    memory: Memory,
    holder: Arc<Holder>,
    bytes: Bytes,
}

impl SharedBytes {
    fn new(memory: Memory, holder: Arc<Holder>, bytes: Bytes) -> Self {
        let this = Self { memory, holder, bytes };
        let length = this.bytes.len();
        let account = &this.memory.0;
        let mut shared = lock(&account.shared);
        let answers = shared.entry(this.key()).or_default();
        if *answers == 0 {
            account.buffers.fetch_add(length, Relaxed);
        }
        *answers += 1;
        drop(shared);
        let mut held = lock(&this.holder.held);
        held.shared += length;
        if this.holder.is_cut.load(Relaxed) {
            account.leaving.fetch_add(length, Relaxed);
        }
        drop(held);
        this
    }

    fn key(&self) -> (usize, usize) {
        (self.bytes.as_ptr().addr(), self.bytes.len())
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        let length = self.bytes.len();
        let account = &self.memory.0;
        let mut held = lock(&self.holder.held);
        held.shared -= length;
        if self.holder.is_cut.load(Relaxed) {
            account.leaving.fetch_sub(length, Relaxed);
        }
        drop(held);
        let mut shared = lock(&account.shared);
        let Entry::Occupied(mut answers) = shared.entry(self.key()) else { return };
        *answers.get_mut() -= 1;
        if *answers.get() == 0 {
            answers.remove();
            account.buffers.fetch_sub(length, Relaxed);
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

    fn address(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 1).into()
    }

    fn charge(memory: &Memory, client: u8, bytes: usize) -> Charge {
        let mut charge = memory.charge(Some(address(client)));
        charge.set(bytes, Waker::noop());
        charge
    }

    #[test]
    fn the_client_that_holds_most_gives_way_and_its_largest_connection_first() {
        let memory = Memory::new(16 * MIB, usize::MAX);
        let (single, small, middle) =
            (charge(&memory, 1, 6 * MIB), charge(&memory, 2, MIB), charge(&memory, 2, 3 * MIB));
        let largest = charge(&memory, 2, 5 * MIB);
        assert!(memory.refusal(0).is_none() && !largest.is_cut());
        let newest = charge(&memory, 1, MIB);
        assert!(largest.is_cut() && ![&single, &small, &middle, &newest].iter().any(|charge| charge.is_cut()));
        assert_eq!(memory.buffers(), 11 * MIB, "what leaves counts no more");
        drop(largest);
        assert_eq!(memory.buffers(), 11 * MIB);
        drop((single, small, middle, newest));
        assert_eq!(memory.buffers(), 0);
    }

    #[test]
    fn work_is_refused_to_the_connection_that_has_too_large_a_part_of_the_buffers() {
        let memory = Memory::new(16 * MIB, usize::MAX);
        let _held = [charge(&memory, 1, 7 * MIB), charge(&memory, 2, 7 * MIB)];
        assert_eq!(memory.refusal(7 * MIB), Some(Refusal::BufferBytes));
        assert_eq!((memory.refusal(5 * MIB), memory.refusal(0)), (None, None));
    }

    #[test]
    fn bytes_that_answers_share_count_once_and_for_each_connection_that_is_cut() {
        let memory = Memory::new(16 * MIB, usize::MAX);
        let value = Bytes::from(vec![7; 4 * MIB]);
        let mut connections = [1, 2].map(|client| memory.charge(Some(address(client))));
        let answers = [0, 0, 1].map(|at| connections[at].lender().lend(value.clone()));
        assert_eq!((memory.buffers(), &answers[2][..9]), (4 * MIB, &[7; 9][..]));
        for charge in &mut connections {
            charge.set_with_shared(0, Waker::noop());
        }
        let full = charge(&memory, 3, 12 * MIB - MIB / 2);
        drop(value);
        let other = charge(&memory, 4, MIB / 2);
        assert!(full.is_cut() && ![&connections[0], &connections[1], &other].iter().any(|charge| charge.is_cut()));
        let others = [charge(&memory, 5, 7 * MIB + MIB / 2), charge(&memory, 6, 4 * MIB)];
        assert!(connections[0].is_cut() && !others.iter().any(Charge::is_cut));
        drop((full, other, others, connections));
        let [first, second, third] = answers;
        drop((first, third));
        assert_eq!(memory.0.buffers.load(Relaxed), 4 * MIB);
        drop(second);
        assert_eq!((memory.0.buffers.load(Relaxed), memory.0.leaving.load(Relaxed)), (0, 0));
    }

    #[test]
    fn connections_that_are_gone_are_forgotten() {
        let memory = Memory::new(10 * MIB, usize::MAX);
        let _kept = charge(&memory, 1, MIB);
        for _ in 0..10_000 {
            charge(&memory, 1, MIB);
        }
        assert!(lock(&memory.0.holders).len() < 16);
        assert_eq!(memory.buffers(), MIB);
    }

    #[test]
    fn small_changes_are_not_charged_and_the_rest_of_the_process_counts() {
        let memory = Memory::new(MIB, 2 * MIB);
        let mut charge = charge(&memory, 1, STEP_BYTES - 1);
        assert_eq!(memory.buffers(), 0);
        charge.set(STEP_BYTES, Waker::noop());
        charge.set(1, Waker::noop());
        assert_eq!(memory.buffers(), STEP_BYTES);
        memory.set_measured(MIB);
        charge.set(MIB / 2, Waker::noop());
        assert_eq!(memory.total(), MIB + MIB / 2 - STEP_BYTES);
        memory.set_measured(2 * MIB);
        assert_eq!(memory.refusal(0), Some(Refusal::Memory));
        assert!(!charge.is_cut(), "it holds too little to matter");
        charge.set(0, Waker::noop());
        assert_eq!(memory.buffers(), 0);
    }
}
