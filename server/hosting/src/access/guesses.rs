//! Limit of wrong tokens from an address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use quire_rpc::server::Client;

/// Wrong tokens at once; then one per [`PAUSE`].
const BURST: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// Most addresses with a count of their own; further ones share one.
const ADDRESSES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    at: Instant,
}

impl Bucket {
    const fn full(now: Instant) -> Self {
        Self { left: BURST, at: now }
    }

    fn refilled(self, now: Instant) -> Self {
        let pauses = now.duration_since(self.at).as_secs() / PAUSE.as_secs();
        let pauses = u32::try_from(pauses).unwrap_or(BURST);
        let left = self.left.saturating_add(pauses).min(BURST);
        Self { left, at: if left == BURST { now } else { self.at + PAUSE * pauses } }
    }
}

/// Token buckets by address.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<HashMap<Option<IpAddr>, Bucket>>);

impl Guesses {
    /// Counts a wrong token of this address; true if there were too many.
    pub(super) fn is_too_many(&self, address: Option<IpAddr>, now: Instant) -> bool {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= ADDRESSES_MAX {
            buckets.retain(|_, bucket| bucket.refilled(now).left < BURST);
        }
        let key = known(&buckets, address);
        let bucket = buckets.entry(key).or_insert_with(|| Bucket::full(now));
        *bucket = bucket.refilled(now);
        let is_empty = bucket.left == 0;
        bucket.left = bucket.left.saturating_sub(1);
        is_empty
    }
}

/// Key that an address is counted under.
fn known(buckets: &HashMap<Option<IpAddr>, Bucket>, address: Option<IpAddr>) -> Option<IpAddr> {
    let key = address.map(Client::network);
    if buckets.contains_key(&key) || buckets.len() < ADDRESSES_MAX { key } else { None }
}

#[cfg(test)]
mod tests {
    use super::{ADDRESSES_MAX, BURST, Duration, Guesses, Instant, IpAddr};

    #[test]
    fn an_address_that_guesses_is_found_and_others_are_not() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let (bad, good): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        for _ in 0..BURST {
            assert!(!guesses.is_too_many(Some(bad), now));
        }
        assert!(guesses.is_too_many(Some(bad), now) && !guesses.is_too_many(Some(good), now));
        let later = now + Duration::from_secs(1);
        assert!(!guesses.is_too_many(Some(bad), later) && guesses.is_too_many(Some(bad), later));
        assert!(!guesses.is_too_many(Some(bad), later + Duration::from_mins(1)));
    }

    #[test]
    fn no_number_of_addresses_takes_more_memory() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for address in 0..20_000_u32 {
            guesses.is_too_many(Some(IpAddr::from(address.to_be_bytes())), now);
        }
        assert!(guesses.0.lock().unwrap().len() <= ADDRESSES_MAX + 1);
        assert!(guesses.is_too_many(Some([200, 0, 0, 1].into()), now), "the others share what is left");
        let network = |last| Some(IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]));
        let guesses = Guesses::default();
        for _ in 0..BURST {
            guesses.is_too_many(network(1), now);
        }
        assert!(guesses.is_too_many(network(2), now));
    }
}
