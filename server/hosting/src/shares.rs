//! Places that clients hold for long, shared fairly: a client that holds many leaves places for those that hold fewer.
//!
//! The rule is that of dynamic thresholds for shared buffers (Choudhury and Hahne, 1998): a client may take a place while
//! it holds fewer than [`TIMES_FREE`] times the places that are free. One client alone gets three quarters; the next gets
//! three quarters of the rest. So a newcomer finds a place without anyone being put out, and a place that no one else
//! wants is used. Must not know what a place is for.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quire_rpc::Request;

/// A client may take a place while it holds fewer than so many times the free ones.
const TIMES_FREE: usize = 3;

/// Calls and connections of one client count together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Client {
    /// Neither a credential nor an address is known, as on a Unix socket.
    #[default]
    Unknown,
    /// All addresses of an IPv6 network of 64 bits are one.
    Address(IpAddr),
    /// The name of its credential, wherever it calls from.
    Credential(Arc<str>),
}

impl Client {
    /// The client at an address.
    pub fn at(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Unknown, |address| Self::Address(network(address)))
    }

    /// The client that makes a call.
    pub fn of<T>(request: &Request<T>) -> Self {
        let named = request.extensions().get::<Self>().cloned();
        named.unwrap_or_else(|| Self::at(request.remote_addr().map(|address| address.ip())))
    }
}

/// What an address is counted under: one client may have all addresses of an IPv6 network.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[derive(Debug, Default)]
struct Table {
    taken: usize,
    /// Each client that holds a place, with how many.
    held: HashMap<Client, usize>,
}

#[derive(Debug)]
struct Places {
    total: usize,
    table: Mutex<Table>,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Places that clients share; clones share them, too.
#[derive(Clone, Debug)]
pub struct Shares(Arc<Places>);

impl Shares {
    /// So many places.
    pub fn new(total: usize) -> Self {
        Self(Arc::new(Places { total, table: Mutex::default() }))
    }

    /// A place; `None` if all are taken, or if the client holds its share already.
    pub fn take(&self, client: Client) -> Option<Share> {
        let mut table = self.0.lock();
        let free = self.0.total - table.taken;
        let held = table.held.get(&client).copied().unwrap_or_default();
        if held >= free.saturating_mul(TIMES_FREE) {
            return None;
        }
        table.taken += 1;
        table.held.insert(client.clone(), held + 1);
        drop(table);
        Some(Share { places: Arc::clone(&self.0), client })
    }

    /// Places that are taken.
    pub fn taken(&self) -> usize {
        self.0.lock().taken
    }
}

/// A place; given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    places: Arc<Places>,
    client: Client,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut table = self.places.lock();
        table.taken -= 1;
        if let Some(held) = table.held.get_mut(&self.client) {
            *held -= 1;
            if *held == 0 {
                table.held.remove(&self.client);
            }
        }
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
        assert_eq!((shares.taken(), shares.0.lock().held.len()), (0, 0));
    }

    #[test]
    fn what_one_client_leaves_is_enough_for_many_that_want_one_place_each() {
        let shares = Shares::new(64);
        let greedy = all(&shares, &client(0));
        let others: Vec<Share> = (1..100).filter_map(|number| shares.take(client(number))).collect();
        assert_eq!((greedy.len(), others.len()), (48, 16));
    }

    #[test]
    fn a_place_given_back_may_be_taken_by_a_client_that_holds_few() {
        let shares = Shares::new(4);
        let (mut greedy, newcomer) = (all(&shares, &client(0)), all(&shares, &client(1)));
        assert_eq!((greedy.len(), newcomer.len()), (3, 1));
        assert!(shares.take(client(2)).is_none());
        greedy.pop();
        assert!(shares.take(client(0)).is_some(), "it holds 2, and 1 is free");
        let _second = shares.take(client(1)).expect("a place");
        assert!(shares.take(client(0)).is_none());
    }

    #[test]
    fn fewer_than_four_places_are_too_few_to_leave_one() {
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
}
