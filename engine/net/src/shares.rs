//! Fairly shared permits: a client that holds many leaves some for those that hold fewer.
//!
//! The rule is that of dynamic thresholds for shared buffers (Choudhury and Hahne, 1998): a client may take a permit
//! while it holds fewer than [`TIMES_FREE`] times the free ones. One client alone gets three quarters; the next gets
//! three quarters of the rest. So a newcomer gets a permit without preemption, and permits that no one else wants are
//! used.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::live::Live;

/// Padding against false sharing: two cache lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub struct Apart<T>(pub T);

/// A client may take a permit while it holds fewer than this many times the free ones.
const TIMES_FREE: usize = 3;

/// The party whose calls and connections count together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Client {
    /// Neither credential nor address is known, as on a Unix socket.
    #[default]
    Unknown,
    /// An address; those of an IPv6 /64 network are one.
    Address(IpAddr),
    /// The name of its credential, regardless of address.
    Credential(Arc<str>),
}

impl Client {
    /// The client at an address.
    pub fn at(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Unknown, |address| Self::Address(Self::network(address)))
    }

    /// The address to count under: one client may have a whole IPv6 network.
    pub fn network(address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
            v4 @ IpAddr::V4(_) => v4,
        }
    }

    fn has_credential(&self) -> bool {
        matches!(self, Self::Credential(_))
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("without an address"),
            Self::Address(address) => address.fmt(f),
            Self::Credential(name) => f.write_str(name),
        }
    }
}

struct Inner {
    total: Live,
    /// A quarter is for callers with a credential.
    is_reserved: bool,
    taken: Apart<AtomicUsize>,
    open_taken: AtomicUsize,
    holders: Mutex<HashMap<Client, Weak<Holder>>>,
}

impl Inner {
    /// Permits that callers without a credential may hold together.
    #[inline]
    fn open(&self) -> usize {
        let total = self.total.get();
        if self.is_reserved { total / 4 * 3 } else { total }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Client, Weak<Holder>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Permits shared by clients; clones share them, too.
#[derive(Clone)]
pub struct Shares(Arc<Inner>);

impl Shares {
    /// Creates `total` permits.
    pub fn new(total: impl Into<Live>) -> Self {
        Self::with_reserve(total, false)
    }

    /// Creates `total` permits, of which clients without a credential may hold three quarters together if `is_reserved`.
    pub fn with_reserve(total: impl Into<Live>, is_reserved: bool) -> Self {
        let (taken, open_taken) = (Apart(AtomicUsize::new(0)), AtomicUsize::new(0));
        Self(Arc::new(Inner { total: total.into(), is_reserved, taken, open_taken, holders: Mutex::default() }))
    }

    /// Takes a permit; `None` if all are taken, or if the client holds its share already.
    pub fn take(&self, client: Client) -> Option<Share> {
        self.holder(client).take()
    }

    /// Permits in use.
    pub fn taken(&self) -> usize {
        self.0.taken.0.load(Relaxed)
    }

    /// True if any client may take a permit, however many it holds.
    #[inline]
    fn has_plenty(&self) -> bool {
        self.taken() < self.0.open() / (TIMES_FREE + 1) * TIMES_FREE
    }

    /// The client's holder; frequent callers should keep it.
    fn holder(&self, client: Client) -> Arc<Holder> {
        let mut holders = self.0.lock();
        if let Some(known) = holders.get(&client).and_then(Weak::upgrade) {
            return known;
        }
        let shares = Arc::clone(&self.0);
        let holder = Arc::new(Holder { shares, client: client.clone(), held: AtomicUsize::new(0) });
        holders.insert(client, Arc::downgrade(&holder));
        holder
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shares({} of {:?} are taken)", self.taken(), self.0.total)
    }
}

/// One client's permits.
struct Holder {
    shares: Arc<Inner>,
    client: Client,
    held: AtomicUsize,
}

impl Holder {
    /// True if the client may take a permit when `taken` are in use.
    #[inline]
    fn may_take(&self, taken: usize) -> bool {
        let shares = &*self.shares;
        let free = shares.total.get().saturating_sub(taken);
        let free = if self.client.has_credential() {
            free
        } else {
            free.min(shares.open().saturating_sub(shares.open_taken.load(Relaxed)))
        };
        self.held.load(Relaxed) < free.saturating_mul(TIMES_FREE)
    }

    /// True if a permit is available.
    #[inline]
    fn has_room(&self) -> bool {
        self.may_take(self.shares.taken.0.load(Relaxed))
    }

    fn take(self: &Arc<Self>) -> Option<Share> {
        let taken = &self.shares.taken.0;
        taken.fetch_update(Relaxed, Relaxed, |taken| self.may_take(taken).then_some(taken + 1)).ok()?;
        Some(self.counted())
    }

    /// Takes a permit even beyond the limit.
    #[inline]
    fn take_anyway(self: &Arc<Self>) -> Share {
        self.shares.taken.0.fetch_add(1, Relaxed);
        self.counted()
    }

    #[inline]
    fn counted(self: &Arc<Self>) -> Share {
        self.held.fetch_add(1, Relaxed);
        if !self.client.has_credential() {
            self.shares.open_taken.fetch_add(1, Relaxed);
        }
        Share(Arc::clone(self))
    }
}

/// Permits of a waiting call: among all, and among those of its method; released on drop.
pub type CallPermits = (Share, Option<Share>);

/// Caller of the connection's last call, with its holder of call permits: a connection mostly has one caller.
pub struct Caller {
    address: Client,
    client: Client,
    /// The client is not the one at the address.
    is_named: bool,
    holder: Option<Arc<Holder>>,
}

impl Caller {
    /// A caller known only by address.
    pub fn new(address: Client) -> Self {
        Self { client: address.clone(), address, is_named: false, holder: None }
    }

    /// Sets the next call's client: this one, or the one at the address.
    #[inline]
    pub fn set(&mut self, named: Option<&Client>) {
        if named.is_some() || self.is_named {
            self.change(named);
        }
    }

    fn change(&mut self, named: Option<&Client>) {
        let client = named.unwrap_or(&self.address);
        if *client != self.client {
            self.client = client.clone();
            self.holder = None;
        }
        self.is_named = named.is_some();
    }

    /// The client of the next call.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The client's holder in the permits for all calls; `all` must be the same each time.
    #[inline]
    fn part(&mut self, all: &Shares) -> &Arc<Holder> {
        self.holder.get_or_insert_with(|| all.holder(self.client.clone()))
    }

    /// True for an available permit among all, and among the method's own if any.
    #[inline]
    pub fn has_room(&mut self, all: &Shares, own: Option<&Shares>) -> [bool; 2] {
        let in_all = all.has_plenty() || self.part(all).has_room();
        [in_all, own.is_none_or(|own| own.holder(self.client.clone()).has_room())]
    }

    /// Takes the permits of a waiting call.
    #[inline]
    pub fn take(&mut self, all: &Shares, own: Option<&Shares>) -> CallPermits {
        let own = own.map(|own| own.holder(self.client.clone()).take_anyway());
        (self.part(all).take_anyway(), own)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let mut holders = self.shares.lock();
        // The client may have a new holder meanwhile.
        if holders.get(&self.client).is_some_and(|known| known.strong_count() == 0) {
            holders.remove(&self.client);
        }
    }
}

/// A permit, released on drop.
pub struct Share(Arc<Holder>);

impl Drop for Share {
    #[inline]
    fn drop(&mut self) {
        let Holder { shares, client, held } = &*self.0;
        held.fetch_sub(1, Relaxed);
        if !client.has_credential() {
            shares.open_taken.fetch_sub(1, Relaxed);
        }
        shares.taken.0.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({})", self.client)
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share of {}", self.0.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Client {
        Client::at(Some([10, 0, 0, last].into()))
    }

    fn all(shares: &Shares, client: &Client) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(client.clone())).collect()
    }

    #[test]
    fn a_client_gets_three_quarters_of_what_the_others_leave_and_a_newcomer_always_some() {
        let shares = Shares::new(1024);
        let held: Vec<Vec<Share>> = (0..5).map(|number| all(&shares, &client(number))).collect();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [768, 192, 48, 12, 3]);
        assert_eq!(all(&shares, &client(5)).len(), 1);
        drop(held);
        assert_eq!((shares.taken(), shares.0.lock().len()), (0, 0));
    }

    #[test]
    fn what_one_client_leaves_is_enough_for_many_that_want_one_permit_each() {
        let shares = Shares::new(64);
        let greedy = all(&shares, &client(0));
        let others: Vec<Share> = (1..100).filter_map(|number| shares.take(client(number))).collect();
        assert_eq!((greedy.len(), others.len()), (48, 16));
    }

    #[test]
    fn a_released_permit_may_be_taken_by_a_client_that_holds_few() {
        let shares = Shares::new(4);
        let (mut greedy, newcomer) = (all(&shares, &client(0)), all(&shares, &client(1)));
        assert_eq!((greedy.len(), newcomer.len()), (3, 1));
        assert!(shares.take(client(2)).is_none());
        greedy.pop();
        assert!(shares.take(client(0)).is_some(), "it holds 2, and 1 is free");
        let _second = shares.take(client(1)).expect("a permit");
        assert!(shares.take(client(0)).is_none());
    }

    #[test]
    fn a_changed_number_holds_for_the_next_permit_and_takes_none_away() {
        let total = Live::from(4);
        let shares = Shares::new(total.clone());
        let held = all(&shares, &client(0));
        total.set(8);
        assert_eq!((held.len(), all(&shares, &client(0)).len()), (3, 3));
        total.set(2);
        assert!(shares.take(client(1)).is_none() && shares.taken() == 3);
    }

    #[test]
    fn fewer_than_four_permits_are_too_few_to_leave_one() {
        for total in 0..4 {
            assert_eq!(all(&Shares::new(total), &Client::Unknown).len(), total);
        }
    }

    #[test]
    fn a_network_is_one_client_and_a_credential_another() {
        let address = |last| Client::at(Some([0xfd00, 0, 0, 0, 0, 0, 0, last].into()));
        assert_eq!(address(1), address(2));
        assert_eq!(Client::at(Some([0, 0, 0, 0, 0, 0xffff, 0x0a00, 7].into())), client(7));
        let shares = Shares::new(16);
        let held = all(&shares, &address(1));
        assert!(shares.take(address(2)).is_none());
        assert!(shares.take(Client::Credential("reports".into())).is_some());
        drop(held);
    }

    #[test]
    fn callers_without_a_credential_leave_the_others_their_part() {
        let shares = Shares::with_reserve(64, true);
        let strangers: Vec<Share> = (0..100).flat_map(|number| all(&shares, &client(number))).collect();
        assert_eq!(strangers.len(), 48);
        assert_eq!(all(&shares, &Client::Credential("till".into())).len(), 12, "three quarters of 16");
        assert!(!shares.has_plenty());
    }
}
