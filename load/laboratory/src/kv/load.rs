//! Loads of the key-value experiments: the published mix of calls with large values, and small values.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bench::template::Turn;
use bench::workload::grpc::Requests;
use bytes::Bytes;
use kv::grpc::wire::{PutRequest, RetrieveRequest};
use prost::Message;
use quire_rpc::client::Path;
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use crate::machine::{below, exponential};

/// Calls in flight in the published experiment.
pub(super) const CALLS_IN_FLIGHT: usize = 100;

/// Mean sizes of the published load, exponentially distributed.
const KEY_BYTES_MEAN: f64 = 64.0;
const VALUE_BYTES_MEAN: f64 = 65_536.0;
/// A key contains its number, so that all differ.
const KEY_BYTES_MIN: usize = 8;
/// Default message limit of a server, less overhead; one value in 10^27 would be larger.
const VALUE_BYTES_MAX: usize = (4 << 20) - (8 << 10);

/// Creations between a key's creation and its first use, and deletions between its last use and its deletion. One call
/// in four creates, so these are four times as many calls as are in flight: in any order of them, the server finds the
/// requested keys.
const CALLS_APART: usize = CALLS_IN_FLIGHT;
/// Keys that exist before the published load begins: the first to be deleted, a reserve until created keys may be used,
/// and some to draw from.
pub(super) const KEYS_FIRST: u64 = 3 * CALLS_APART as u64;

/// Keys and values of the small load; the keys are those of redis-benchmark.
pub(super) const SMALL_KEYS: u64 = 100_000;
const SMALL_KEY_BYTES: usize = 16;
pub(super) const SMALL_VALUE_BYTES: usize = 100;
/// Share of reads in the mix.
pub(super) const READS_PERCENT: u64 = 80;

/// Methods for small values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Methods {
    /// Creates a key with a value.
    pub(super) create: &'static str,
    /// Replaces a value.
    pub(super) write: &'static str,
    pub(super) read: &'static str,
}

pub(super) const QUIRE: Methods = Methods {
    create: "/io.grpc.KeyValueService/Create",
    write: "/io.grpc.KeyValueService/Update",
    read: "/io.grpc.KeyValueService/Retrieve",
};

pub(super) const ETCD: Methods =
    Methods { create: "/etcdserverpb.KV/Put", write: "/etcdserverpb.KV/Put", read: "/etcdserverpb.KV/Range" };

const DELETE: &str = "/io.grpc.KeyValueService/Delete";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Create,
    Retrieve,
    Update,
    Delete,
}

const KINDS: [Kind; 4] = [Kind::Create, Kind::Retrieve, Kind::Update, Kind::Delete];

/// The published load on one server; tracks the server's keys.
#[derive(Clone, Debug)]
pub(super) struct Published {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    random: Xoshiro256PlusPlus,
    /// Rest of a block in which each kind occurs once, in random order. So every run has the same simulated work;
    /// independent draws would vary it by more than the difference to be measured.
    block: Vec<Kind>,
    /// Keys that any call may use.
    known: Vec<Bytes>,
    /// Keys that no call may use yet.
    fresh: VecDeque<Bytes>,
    /// Keys that no call may use any more, in order of deletion.
    doomed: VecDeque<Bytes>,
    keys: u64,
    noise: Bytes,
}

impl Published {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut noise = vec![0; VALUE_BYTES_MAX];
        random.fill_bytes(&mut noise);
        let (block, known, fresh, doomed) = (Vec::new(), Vec::new(), VecDeque::new(), VecDeque::new());
        let state = State { random, block, known, fresh, doomed, keys: 0, noise: noise.into() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Creations of the first keys; make [`KEYS_FIRST`] of them before the mix.
    pub(super) fn first(&self) -> Requests {
        let state = Arc::clone(&self.state);
        Requests::Made(Arc::new(move |_| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let (key, value) = (state.first_key(), state.value());
            (None, encoded(&PutRequest { key, value, ..PutRequest::default() }))
        }))
    }

    pub(super) fn mix(&self) -> Requests {
        let state = Arc::clone(&self.state);
        let paths = [QUIRE.create, QUIRE.read, QUIRE.write, DELETE].map(Path::named);
        Requests::Made(Arc::new(move |_| {
            let (kind, message) = state.lock().unwrap_or_else(PoisonError::into_inner).call();
            (Some(paths[kind as usize].clone()), message)
        }))
    }
}

impl State {
    fn call(&mut self) -> (Kind, Bytes) {
        let kind = self.kind();
        let message = match kind {
            Kind::Create => {
                let key = self.new_key();
                self.fresh.push_back(key.clone());
                if self.fresh.len() > CALLS_APART {
                    self.known.extend(self.fresh.pop_front());
                }
                let value = self.value();
                encoded(&PutRequest { key, value, ..PutRequest::default() })
            }
            Kind::Retrieve => encoded(&RetrieveRequest { want_details: false, key: self.known_key() }),
            Kind::Update => {
                let key = self.known_key();
                let value = self.value();
                encoded(&PutRequest { key, value, ..PutRequest::default() })
            }
            Kind::Delete => {
                let place = self.place();
                let doomed = self.known.swap_remove(place);
                self.doomed.push_back(doomed);
                encoded(&RetrieveRequest { want_details: false, key: self.doomed.pop_front().unwrap_or_default() })
            }
        };
        (kind, message)
    }

    fn kind(&mut self) -> Kind {
        if self.block.is_empty() {
            self.block = KINDS.to_vec();
            for last in (1..KINDS.len()).rev() {
                let other = below(&mut self.random, last + 1);
                self.block.swap(last, other);
            }
        }
        self.block.pop().unwrap_or(Kind::Retrieve)
    }

    fn place(&mut self) -> usize {
        below(&mut self.random, self.known.len())
    }

    fn first_key(&mut self) -> Bytes {
        let key = self.new_key();
        if self.doomed.len() < CALLS_APART {
            self.doomed.push_back(key.clone());
        } else {
            self.known.push(key.clone());
        }
        key
    }

    fn known_key(&mut self) -> Bytes {
        let place = self.place();
        self.known[place].clone()
    }

    fn new_key(&mut self) -> Bytes {
        let mut key = vec![0; exponential(&mut self.random, KEY_BYTES_MEAN).max(KEY_BYTES_MIN)];
        self.random.fill_bytes(&mut key);
        key[..KEY_BYTES_MIN].copy_from_slice(&self.keys.to_be_bytes());
        self.keys += 1;
        key.into()
    }

    fn value(&mut self) -> Bytes {
        self.noise.slice(..exponential(&mut self.random, VALUE_BYTES_MEAN).min(VALUE_BYTES_MAX))
    }
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// Kind of small calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Small {
    Read,
    Write,
    Mix,
}

/// Creations of all small entries: [`SMALL_KEYS`] calls, numbered without a gap.
pub(super) fn small_creations() -> Requests {
    Requests::Made(Arc::new(|turn| (None, small_put(turn.number))))
}

/// Small calls on random keys.
pub(super) fn small_calls(methods: Methods, small: Small) -> Requests {
    let (read, write) = (Path::named(methods.read), Path::named(methods.write));
    let reads_percent = match small {
        Small::Read => 100,
        Small::Write => 0,
        Small::Mix => READS_PERCENT,
    };
    Requests::Made(Arc::new(move |turn: Turn| {
        let mut draws = SplitMix64::seed_from_u64(turn.number);
        let key = draws.next_u64() % SMALL_KEYS;
        if draws.next_u64() % 100 < reads_percent {
            (Some(read.clone()), small_get(key))
        } else {
            (Some(write.clone()), small_put(key))
        }
    }))
}

/// Fields 1 and 2, each with the length of its bytes.
const KEY_HEAD: [u8; 2] = [1 << 3 | 2, 16];
const VALUE_HEAD: [u8; 2] = [2 << 3 | 2, 100];

fn small_get(number: u64) -> Bytes {
    let mut message = Vec::with_capacity(2 + SMALL_KEY_BYTES);
    put_key(number, &mut message);
    message.into()
}

fn small_put(number: u64) -> Bytes {
    let mut message = Vec::with_capacity(4 + SMALL_KEY_BYTES + SMALL_VALUE_BYTES);
    put_key(number, &mut message);
    message.extend_from_slice(&VALUE_HEAD);
    message.resize(message.len() + SMALL_VALUE_BYTES, b'x');
    message.into()
}

/// `key:` and twelve digits. Hand-written, because the client's core is half of what is measured.
fn put_key(number: u64, message: &mut Vec<u8>) {
    let mut key = *b"key:000000000000";
    let mut left = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    message.extend_from_slice(&KEY_HEAD);
    message.extend_from_slice(&key);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_published_mix_is_even_and_uses_keys_that_exist() {
        let published = Published::new(1);
        let mut state = published.state.lock().expect("no thread panicked");
        let mut there: HashMap<Bytes, u64> = HashMap::new();
        for _ in 0..KEYS_FIRST {
            there.insert(state.first_key(), 0);
        }
        let (mut counts, mut key_bytes, mut value_bytes) = ([0u64; 4], 0usize, 0usize);
        let (mut used, apart) = (HashMap::new(), 4 * CALLS_APART as u64 - 4);
        for call in 1..=40_000u64 {
            let (kind, message) = state.call();
            counts[kind as usize] += 1;
            let PutRequest { key, value, .. } = PutRequest::decode(message).expect("a message");
            match kind {
                Kind::Create => {
                    key_bytes += key.len();
                    value_bytes += value.len();
                    assert_eq!(there.insert(key, call), None, "a key is new");
                }
                Kind::Retrieve | Kind::Update => {
                    let since = there.get(&key).expect("the key was created and not deleted");
                    assert!(*since == 0 || *since + apart <= call);
                    used.insert(key, call);
                }
                Kind::Delete => {
                    assert!(there.remove(&key).is_some());
                    assert!(used.remove(&key).is_none_or(|last| last + apart <= call));
                }
            }
        }
        assert_eq!(counts, [10_000; 4]);
        // Means of 10,000 exponential draws deviate by some percent.
        assert!((620_000..720_000).contains(&key_bytes), "{key_bytes}");
        assert!((620_000_000..690_000_000).contains(&value_bytes), "{value_bytes}");
    }

    #[test]
    fn small_messages_are_what_prost_makes_of_them() {
        let key = Bytes::from_static(b"key:000000098765");
        assert_eq!(small_get(98_765), encoded(&RetrieveRequest { want_details: false, key: key.clone() }));
        let value = vec![b'x'; SMALL_VALUE_BYTES].into();
        assert_eq!(small_put(98_765), encoded(&PutRequest { key, value, ..PutRequest::default() }));
    }

    #[test]
    fn the_small_mix_reads_four_times_in_five() {
        let Requests::Made(make) = small_calls(QUIRE, Small::Mix) else { panic!("a mix") };
        let turn = |number| Turn { number, client: 0, worker: 0 };
        let reads = (0..100_000).filter(|number| make(turn(*number)).1.len() == 2 + SMALL_KEY_BYTES).count();
        assert!((79_000..81_000).contains(&reads), "{reads}");
    }
}
