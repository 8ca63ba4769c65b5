//! Places for the connections of a port, which one client may take all. When none is free, one connection makes room
//! for a newcomer: idle before busy, without a credential before with one, of the client with most connections, and of
//! those the one that has been silent longest.
//!
//! A connection that makes room gives its place up at once and is drained. Until it ends it takes one of a few extra
//! places, as do connections that are only refused.

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

use super::shares::Client;

/// The places of a port; clones share them.
#[derive(Clone)]
pub struct Places(Arc<Port>);

struct Port {
    most: usize,
    more: usize,
    asks_callers: bool,
    opened_at: Instant,
    table: Mutex<Table>,
    /// A place was released.
    freed: Notify,
    /// A connection waits for a place.
    crowded: Notify,
}

#[derive(Default)]
struct Table {
    served: usize,
    /// Connections in extra places: refused or leaving.
    others: usize,
    next: u64,
    /// Served connections, by number.
    connections: HashMap<u64, Arc<Standing>>,
    held: HashMap<Client, Arc<AtomicUsize>>,
}

/// A connection's state that decides who makes room.
pub(super) struct Standing {
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
    fn spared(&self, client: &Client, port: &Port) -> Option<u64> {
        let own = self.held.get(client).map_or(0, |held| held.load(Relaxed));
        let candidates = self.connections.iter().filter_map(|(number, standing)| {
            let (is_busy, is_known) = (standing.is_busy.load(Relaxed), standing.is_known.load(Relaxed));
            let held = standing.held.load(Relaxed);
            // A client that still has as many as the newcomer afterwards gives way; its connections that are busy or
            // have a credential, only above three quarters of all places.
            let is_larger = held > own + 1 && (!(is_busy || is_known) || held > port.most / 4 * 3);
            let is_stranger = port.asks_callers && !is_busy && !is_known;
            let active_ms = standing.active_ms.load(Relaxed);
            (is_larger || is_stranger).then_some(((is_busy, is_known, Reverse(held), active_ms), *number))
        });
        candidates.min().map(|(_, number)| number)
    }
}

impl Places {
    /// Creates `most` places, and `more` for connections that are refused or leave. If `asks_callers`, an idle
    /// connection without a credential makes room for any newcomer, otherwise only for one of a client with fewer
    /// connections.
    pub fn new(most: usize, more: usize, asks_callers: bool) -> Self {
        let (table, freed, crowded) = Default::default();
        let opened_at = Instant::now();
        Self(Arc::new(Port { most, more: more.max(1), asks_callers, opened_at, table, freed, crowded }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection of this client; `None` if all are taken and no connection makes room.
    pub fn take(&self, client: &Client) -> Option<Place> {
        let mut table = self.lock();
        let mut instead_of = None;
        if table.served >= self.0.most {
            if table.others >= self.0.more {
                return None;
            }
            let leaving = table.spared(client, &self.0).and_then(|number| table.remove(number))?;
            table.others += 1;
            leaving.is_leaving.store(true, Relaxed);
            leaving.task.wake();
            instead_of = Some(leaving.client.clone());
        }
        let (number, standing) = table.serve(client, self.0.opened_at);
        Some(Place { places: self.clone(), number: Some(number), standing, instead_of })
    }

    /// A place for a connection that is only refused; `None` if those are taken, too.
    pub(super) fn take_to_refuse(&self, client: &Client) -> Option<Place> {
        let mut table = self.lock();
        if table.others >= self.0.more {
            return None;
        }
        table.others += 1;
        let standing = Arc::new(Standing::new(client.clone(), Arc::default(), self.0.opened_at));
        Some(Place { places: self.clone(), number: None, standing, instead_of: None })
    }

    /// Number of served connections.
    pub fn taken(&self) -> usize {
        self.lock().served
    }

    pub(super) fn freed(&self) -> &Notify {
        &self.0.freed
    }

    pub(super) fn crowded(&self) -> &Notify {
        &self.0.crowded
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Places({} of {} are taken)", self.taken(), self.0.most)
    }
}

/// A connection's place, released on drop.
pub struct Place {
    places: Places,
    /// `None` for a connection that is refused.
    number: Option<u64>,
    standing: Arc<Standing>,
    instead_of: Option<Client>,
}

impl Place {
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

    pub(super) fn is_refused(&self) -> bool {
        self.number.is_none()
    }

    pub(super) fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place of {}", self.standing.client)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.lock();
        if self.number.and_then(|number| table.remove(number)).is_none() {
            table.others -= 1;
        }
        drop(table);
        self.places.0.freed.notify_one();
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
    pub(super) fn note(&self, is_busy: bool, now: Instant) {
        self.is_busy.store(is_busy, Relaxed);
        self.active_ms.store(milliseconds(self.opened_at, now), Relaxed);
    }

    pub(super) fn known(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_known)
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Relaxed)
    }

    pub(super) fn poll_leave(&self, cx: &mut Context<'_>) -> Poll<()> {
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

    fn take(places: &Places, last: u8, count: usize) -> Vec<Place> {
        (0..count).map(|_| places.take(&client(last)).expect("a place")).collect()
    }

    fn leaving(held: &[Place]) -> Vec<usize> {
        (0..held.len()).filter(|place| held[*place].standing.is_leaving()).collect()
    }

    /// Connections that are served, others, and clients.
    fn counts(places: &Places) -> (usize, usize, usize) {
        let table = places.lock();
        (table.served, table.others, table.held.len())
    }

    #[test]
    fn one_client_has_all_places_until_another_comes() {
        let places = Places::new(8, 100, false);
        let mut first = take(&places, 1, 8);
        assert!(places.take(&client(1)).is_none(), "there are no more, and none for its own sake");
        first[0].set_busy(true);
        first[1].known().store(true, Relaxed);
        let second = take(&places, 2, 4);
        assert_eq!((leaving(&first), places.taken()), (vec![2, 3, 4, 5], 8));
        assert_eq!(second[0].instead_of(), Some(&client(1)));
        assert!(places.take(&client(2)).is_none(), "each has its half");
        first.truncate(2);
        drop(second);
        assert_eq!(counts(&places), (2, 0, 1));
        drop(first);
        assert_eq!(counts(&places), (0, 0, 0));
    }

    #[test]
    fn a_client_with_calls_under_way_gives_way_above_three_quarters_and_not_below() {
        let places = Places::new(8, 100, true);
        let first = take(&places, 1, 8);
        for place in &first {
            place.set_busy(true);
        }
        for place in &first[..7] {
            place.known().store(true, Relaxed);
        }
        let second = [(); 2].map(|()| {
            let place = places.take(&client(2)).expect("a place");
            place.known().store(true, Relaxed);
            place
        });
        assert_eq!(leaving(&first)[1], 7, "those of whom nothing is known come first");
        assert!(places.take(&client(3)).is_none());
        drop(second);
    }

    #[test]
    fn where_callers_have_credentials_a_stranger_makes_room_for_any_newcomer() {
        let places = Places::new(4, 2, true);
        let strangers = take(&places, 1, 4);
        let next = take(&places, 1, 2);
        assert_eq!(leaving(&strangers).len(), 2);
        assert!(places.take(&client(1)).is_none(), "no more may be leaving at once");
        assert!(places.take_to_refuse(&client(1)).is_none());
        drop(strangers);
        assert_eq!(places.taken(), 2);
        drop(next);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_clients_connections_the_one_that_was_silent_longest_leaves() {
        let places = Places::new(3, 100, true);
        let held = take(&places, 1, 3);
        for place in [1, 0, 2] {
            tokio::time::advance(std::time::Duration::from_millis(5)).await;
            held[place].set_busy(false);
        }
        let newcomer = take(&places, 2, 1);
        assert_eq!(leaving(&held), [1]);
        tokio::join!(held[1].leave(), async { drop(newcomer) });
    }
}
