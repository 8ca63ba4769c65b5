//! Permits for the connections of a listener, of which one client may hold all. When none is free, one connection makes
//! room for a newcomer: idle before busy, without a credential before with one, of the client with most connections,
//! and of those the one that has been silent longest.
//!
//! A connection that makes room releases its permit at once and is drained. Until it ends it holds one of a few extra
//! permits, as do connections that are only refused.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::live::Live;
use super::shares::Client;

/// The permits of a listener; clones share them.
#[derive(Clone)]
pub struct Permits(Arc<Inner>);

struct Inner {
    connections_max: Live,
    /// Extra permits; one at least.
    extra_max: Live,
    asks_callers: bool,
    opened_at: Instant,
    table: Mutex<Table>,
    /// A permit was released.
    freed: Notify,
    /// A connection waits for a permit.
    crowded: Notify,
}

#[derive(Default)]
struct Table {
    served: usize,
    /// Connections in extra permits: refused or leaving.
    others: usize,
    next: u64,
    /// Served connections, by number.
    connections: HashMap<u64, Arc<Standing>>,
    held: HashMap<Client, Arc<AtomicUsize>>,
}

/// A connection's state that decides who makes room.
#[derive(Debug)]
pub struct Standing {
    client: Client,
    /// Number of the client's connections.
    held: Arc<AtomicUsize>,
    opened_at: Instant,
    is_busy: AtomicBool,
    /// Time of the last `note`, in milliseconds after `opened_at`.
    active_ms: AtomicU64,
    /// Set when a credential was shown.
    is_known: Arc<AtomicBool>,
    is_leaving: AtomicBool,
    task: AtomicWaker,
}

impl Table {
    fn serve(&mut self, client: &Client, opened_at: Instant) -> (u64, Arc<Standing>) {
        let held = self.held.entry(client.clone()).or_default();
        held.fetch_add(1, Relaxed);
        let standing = Arc::new(Standing::new(client.clone(), Arc::clone(held), opened_at));
        self.served += 1;
        self.next += 1;
        self.connections.insert(self.next, Arc::clone(&standing));
        (self.next, standing)
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Standing>> {
        let standing = self.connections.remove(&number)?;
        self.served -= 1;
        if standing.held.fetch_sub(1, Relaxed) == 1 {
            self.held.remove(&standing.client);
        }
        Some(standing)
    }

    /// The connection that makes room for one of `client`.
    fn spared(&self, client: &Client, inner: &Inner) -> Option<u64> {
        let own = self.held.get(client).map_or(0, |held| held.load(Relaxed));
        let candidates = self.connections.iter().filter_map(|(number, standing)| {
            let (is_busy, is_known) = (standing.is_busy.load(Relaxed), standing.is_known.load(Relaxed));
            let held = standing.held.load(Relaxed);
            // A client that still has as many as the newcomer afterwards gives way; its connections that are busy or
            // have a credential, only above three quarters of all permits.
            let is_larger = held > own + 1 && (!(is_busy || is_known) || held > inner.connections_max.get() / 4 * 3);
            let is_stranger = inner.asks_callers && !is_busy && !is_known;
            let active_ms = standing.active_ms.load(Relaxed);
            (is_larger || is_stranger).then_some(((is_busy, is_known, Reverse(held), active_ms), *number))
        });
        candidates.min().map(|(_, number)| number)
    }
}

impl Permits {
    /// Creates `connections_max` permits, and `extra_max` for connections that are refused or leave. If `asks_callers`,
    /// an idle connection without a credential makes room for any newcomer, otherwise only for one of a client with
    /// fewer connections.
    pub fn new(connections_max: impl Into<Live>, extra_max: impl Into<Live>, asks_callers: bool) -> Self {
        let (table, freed, crowded) = Default::default();
        let opened_at = Instant::now();
        Self(Arc::new(Inner {
            connections_max: connections_max.into(),
            extra_max: extra_max.into(),
            asks_callers,
            opened_at,
            table,
            freed,
            crowded,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for a connection of this client; `None` if all are taken and no connection makes room.
    pub fn take(&self, client: &Client) -> Option<Permit> {
        let mut table = self.lock();
        let mut instead_of = None;
        if table.served >= self.0.connections_max.get() {
            if table.others >= self.0.extra_max.get().max(1) {
                return None;
            }
            let leaving = table.spared(client, &self.0).and_then(|number| table.remove(number))?;
            table.others += 1;
            leaving.is_leaving.store(true, Relaxed);
            leaving.task.wake();
            instead_of = Some(leaving.client.clone());
        }
        let (number, standing) = table.serve(client, self.0.opened_at);
        Some(Permit { permits: self.clone(), number: Some(number), standing, instead_of })
    }

    /// Waits for a permit, or for an extra one for a connection that is only refused. Connections that wait cost the
    /// server nothing if the accept loop waits here: the system queues them.
    pub async fn wait(&self, client: &Client) -> Permit {
        loop {
            let freed = self.0.freed.notified();
            if let Some(permit) = self.take(client).or_else(|| self.take_extra(client)) {
                return permit;
            }
            self.0.crowded.notify_one();
            freed.await;
        }
    }

    fn take_extra(&self, client: &Client) -> Option<Permit> {
        let mut table = self.lock();
        if table.others >= self.0.extra_max.get().max(1) {
            return None;
        }
        table.others += 1;
        let standing = Arc::new(Standing::new(client.clone(), Arc::default(), self.0.opened_at));
        Some(Permit { permits: self.clone(), number: None, standing, instead_of: None })
    }

    /// Number of served connections.
    pub fn taken(&self) -> usize {
        self.lock().served
    }

    /// Completes when another connection waits for a permit.
    pub async fn crowded(&self) {
        self.0.crowded.notified().await;
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permits({} of {:?} are taken)", self.taken(), self.0.connections_max)
    }
}

/// A connection's permit, released on drop.
pub struct Permit {
    permits: Permits,
    /// `None` for a connection that is refused.
    number: Option<u64>,
    standing: Arc<Standing>,
    instead_of: Option<Client>,
}

impl Permit {
    /// Client of the connection that made room, if one had to.
    pub fn instead_of(&self) -> Option<&Client> {
        self.instead_of.as_ref()
    }

    /// Sets whether something is under way on the connection.
    pub fn set_busy(&self, is_busy: bool) {
        self.standing.note(is_busy, Instant::now());
    }

    /// Flag to set when a credential was shown.
    pub fn known(&self) -> Arc<AtomicBool> {
        self.standing.known()
    }

    /// Ready when the connection must leave.
    pub fn poll_leave(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.standing.poll_leave(cx)
    }

    /// Completes when the connection must leave.
    pub async fn leave(&self) {
        poll_fn(|cx| self.poll_leave(cx)).await;
    }

    /// True for an extra permit: the connection is only refused.
    pub fn is_refused(&self) -> bool {
        self.number.is_none()
    }

    /// State that decides who makes room.
    pub fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit of {}", self.standing.client)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut table = self.permits.lock();
        if self.number.and_then(|number| table.remove(number)).is_none() {
            table.others -= 1;
        }
        drop(table);
        self.permits.0.freed.notify_one();
    }
}

impl Standing {
    fn new(client: Client, held: Arc<AtomicUsize>, opened_at: Instant) -> Self {
        let active_ms = AtomicU64::new(milliseconds(opened_at, Instant::now()));
        let (is_busy, is_known, is_leaving, task) = Default::default();
        Self { client, held, opened_at, is_busy, active_ms, is_known, is_leaving, task }
    }

    /// Sets whether something is under way on the connection now.
    #[inline]
    pub fn note(&self, is_busy: bool, now: Instant) {
        self.is_busy.store(is_busy, Relaxed);
        self.active_ms.store(milliseconds(self.opened_at, now), Relaxed);
    }

    fn known(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_known)
    }

    /// True once the connection must leave.
    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Relaxed)
    }

    /// Ready when the connection must leave.
    #[inline]
    pub fn poll_leave(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.task.register(cx.waker());
        if self.is_leaving() { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn milliseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Client {
        Client::at(Some([10, 0, 0, last].into()))
    }

    fn take(permits: &Permits, last: u8, count: usize) -> Vec<Permit> {
        (0..count).map(|_| permits.take(&client(last)).expect("a permit")).collect()
    }

    fn leaving(held: &[Permit]) -> Vec<usize> {
        (0..held.len()).filter(|permit| held[*permit].standing.is_leaving()).collect()
    }

    /// Connections that are served, others, and clients.
    fn counts(permits: &Permits) -> (usize, usize, usize) {
        let table = permits.lock();
        (table.served, table.others, table.held.len())
    }

    #[test]
    fn one_client_has_all_permits_until_another_comes() {
        let permits = Permits::new(8, 100, false);
        let mut first = take(&permits, 1, 8);
        assert!(permits.take(&client(1)).is_none(), "there are no more, and none for its own sake");
        first[0].set_busy(true);
        first[1].known().store(true, Relaxed);
        let second = take(&permits, 2, 4);
        assert_eq!((leaving(&first), permits.taken()), (vec![2, 3, 4, 5], 8));
        assert_eq!(second[0].instead_of(), Some(&client(1)));
        assert!(permits.take(&client(2)).is_none(), "each has its half");
        first.truncate(2);
        drop(second);
        assert_eq!(counts(&permits), (2, 0, 1));
        drop(first);
        assert_eq!(counts(&permits), (0, 0, 0));
    }

    #[test]
    fn a_client_with_calls_under_way_gives_way_above_three_quarters_and_not_below() {
        let permits = Permits::new(8, 100, true);
        let first = take(&permits, 1, 8);
        for permit in &first {
            permit.set_busy(true);
        }
        for permit in &first[..7] {
            permit.known().store(true, Relaxed);
        }
        let second = [(); 2].map(|()| {
            let permit = permits.take(&client(2)).expect("a permit");
            permit.known().store(true, Relaxed);
            permit
        });
        assert_eq!(leaving(&first)[1], 7, "those of whom nothing is known come first");
        assert!(permits.take(&client(3)).is_none());
        drop(second);
    }

    #[test]
    fn where_callers_have_credentials_a_stranger_makes_room_for_any_newcomer() {
        let permits = Permits::new(4, 2, true);
        let strangers = take(&permits, 1, 4);
        let next = take(&permits, 1, 2);
        assert_eq!(leaving(&strangers).len(), 2);
        assert!(permits.take(&client(1)).is_none(), "no more may be leaving at once");
        assert!(permits.take_extra(&client(1)).is_none());
        drop(strangers);
        assert_eq!(permits.taken(), 2);
        drop(next);
    }

    #[test]
    fn a_changed_number_holds_for_the_next_connection_and_ends_none() {
        let most = Live::from(2);
        let permits = Permits::new(most.at_most(4), most.part(2).at_most(3), false);
        assert_eq!([(); 2].map(|()| permits.take_extra(&client(2))).iter().flatten().count(), 1);
        let mut held = take(&permits, 1, 2);
        assert!(permits.take(&client(1)).is_none());
        most.set(100);
        held.extend(take(&permits, 1, 2));
        assert!(permits.take(&client(1)).is_none(), "it counts up to 4");
        assert_eq!([(); 4].map(|()| permits.take_extra(&client(2))).iter().flatten().count(), 3);
        most.set(1);
        held.truncate(1);
        assert!(permits.take(&client(1)).is_none() && leaving(&held).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_clients_connections_the_one_that_was_silent_longest_leaves() {
        let permits = Permits::new(3, 100, true);
        let held = take(&permits, 1, 3);
        for permit in [1, 0, 2] {
            tokio::time::advance(std::time::Duration::from_millis(5)).await;
            held[permit].set_busy(false);
        }
        let newcomer = take(&permits, 2, 1);
        assert_eq!(leaving(&held), [1]);
        tokio::join!(held[1].leave(), async { drop(newcomer) });
    }
}
