//! Calls counted by method, status and time, and how they are shown. Must not know who reports them.

use std::{
    cell::RefCell,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use grpc::{Code, Server};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
    registry::Unit,
};

/// The methods that are counted by name; what else callers make up is counted as `other`.
const METHODS: [&str; 26] = [
    "/bookstore.BookStore/Lookup",
    "/bookstore.BookStore/Buy",
    "/bookstore.BookStore/Search",
    "/bookstore.BookStore/SearchStream",
    "/bookstore.BookStore/ListTopics",
    "/bookstore.BookStore/Hello",
    "/bookstore.Admin/List",
    "/bookstore.Admin/Restock",
    "/bookstore.Admin/UpdatePrice",
    "/bookstore.Admin/Log",
    "/bookstore.Admin/TailLog",
    kv::grpc::METHODS[0],
    kv::grpc::METHODS[1],
    kv::grpc::METHODS[2],
    kv::grpc::METHODS[3],
    kv::grpc::METHODS[4],
    kv::grpc::METHODS[5],
    kv::grpc::METHODS[6],
    kv::grpc::METHODS[7],
    records::grpc::METHODS[0],
    records::grpc::METHODS[1],
    records::grpc::METHODS[2],
    "/RPCGame/Try",
    "/RPCGame/Done",
    "/RPCGameStream/Play",
    "other",
];

/// gRPC's status codes run from 0 to 16.
const CODES: usize = 17;

/// Upper bounds of the histogram's buckets in nanoseconds: 1, 2 and 5 of each decade from 1 µs to 10 s.
const BOUNDS_NS: [u64; 22] = {
    let mut bounds = [10_000_000_000; 22];
    let (mut place, mut decade) = (0, 1000);
    while place + 3 <= bounds.len() {
        bounds[place] = decade;
        bounds[place + 1] = 2 * decade;
        bounds[place + 2] = 5 * decade;
        (place, decade) = (place + 3, 10 * decade);
    }
    bounds
};

/// The last bucket has no bound.
const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// A number that one thread adds to and all may read: an addition needs no locked instruction, which costs some
/// twenty times as much, contended or not.
#[derive(Debug, Default)]
struct Tally(AtomicU64);

impl Tally {
    fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One method's calls.
#[derive(Debug, Default)]
struct Calls {
    by_code: [Tally; CODES],
    by_time: [Tally; BUCKETS],
    nanos: Tally,
}

/// What one thread has counted; nobody else writes there, nor to the cache lines beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([Calls; METHODS.len()]);

/// One for each thread that ever ended a call: a server's threads are started once.
type Shards = Mutex<Vec<Arc<Shard>>>;

thread_local! {
    /// This thread's shard, and whose it is.
    static OWN: RefCell<Option<(Arc<Shards>, Arc<Shard>)>> = const { RefCell::new(None) };
}

/// Calls by method, status and time, and what the server has open; clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    shards: Arc<Shards>,
    server: Arc<OnceLock<Server>>,
}

impl Counts {
    /// From now on `server` is asked for what is open.
    pub(super) fn levels_of(&self, server: &Server) {
        // There is one server in a process.
        let _ = self.server.set(server.clone());
    }

    pub(crate) fn connections(&self) -> usize {
        self.server.get().map_or(0, Server::connections)
    }

    pub(crate) fn calls_in_flight(&self) -> usize {
        self.server.get().map_or(0, Server::calls)
    }

    pub(super) fn ended(&self, path: &str, code: Code, elapsed: Duration) {
        let method = METHODS.iter().position(|method| *method == path).unwrap_or(METHODS.len() - 1);
        let code = usize::try_from(code as u32).unwrap_or(0).min(CODES - 1);
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.with_own(|shard| {
            let calls = &shard.0[method];
            calls.by_code[code].add(1);
            calls.by_time[bucket(nanos)].add(1);
            calls.nanos.add(nanos);
        });
    }

    fn with_own(&self, count: impl FnOnce(&Shard)) {
        OWN.with_borrow_mut(|own| match own {
            Some((shards, shard)) if Arc::ptr_eq(shards, &self.shards) => count(shard),
            _ => {
                let shard = Arc::new(Shard::default());
                self.shards.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&shard));
                count(&shard);
                *own = Some((Arc::clone(&self.shards), shard));
            }
        });
    }

    fn sum(shards: &[Arc<Shard>], pick: impl Fn(&Shard) -> &Tally) -> u64 {
        shards.iter().map(|shard| pick(shard).get()).fold(0, u64::wrapping_add)
    }
}

/// A call that took as long as a bound is below it, as the text format has it.
fn bucket(nanos: u64) -> usize {
    BOUNDS_NS.partition_point(|bound| *bound < nanos)
}

#[expect(clippy::cast_precision_loss, reason = "shown in seconds; 2^53 ns are a hundred days of calls")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let help = "gRPC calls that ended, by method and status";
        let mut metric = encoder.encode_descriptor("grpc_calls", help, None, MetricType::Counter)?;
        for (method, name) in METHODS.iter().enumerate() {
            for code in 0..CODES {
                let count = Self::sum(&shards, |shard| &shard.0[method].by_code[code]);
                if count > 0 {
                    let code = Code::from_number(u32::try_from(code).unwrap_or_default());
                    let labels = [("method", (*name).to_owned()), ("code", format!("{code:?}"))];
                    ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        let help = "From a call's arrival until its answer was about to be written";
        let unit = Some(&Unit::Seconds);
        let mut metric = encoder.encode_descriptor("grpc_call_duration", help, unit, MetricType::Histogram)?;
        let bounds = || BOUNDS_NS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        for (method, name) in METHODS.iter().enumerate() {
            let count = |place: usize| Self::sum(&shards, |shard| &shard.0[method].by_time[place]);
            let buckets: Vec<(f64, u64)> = bounds().enumerate().map(|(place, bound)| (bound, count(place))).collect();
            let calls = buckets.iter().map(|(_, count)| count).sum();
            if calls > 0 {
                let nanos = Self::sum(&shards, |shard| &shard.0[method].nanos);
                let labels = [("method", *name)];
                let mut family = metric.encode_family(&labels)?;
                family.encode_histogram::<[(&str, &str); 0]>(seconds(nanos), calls, &buckets, None)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text, registry::Registry};

    use super::*;

    fn page(counts: &Counts) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(counts.clone()));
        let mut page = String::new();
        text::encode(&mut page, &registry).unwrap();
        page
    }

    #[test]
    fn bounds_are_1_2_and_5_of_each_decade_from_a_microsecond_to_ten_seconds() {
        assert_eq!(BOUNDS_NS[..4], [1000, 2000, 5000, 10_000]);
        assert_eq!(BOUNDS_NS[19..], [2_000_000_000, 5_000_000_000, 10_000_000_000]);
        assert!(BOUNDS_NS.is_sorted());
    }

    #[test]
    fn a_time_on_a_bound_is_below_it_and_one_beyond_all_bounds_is_counted() {
        assert_eq!([0, 1000, 1001, u64::MAX].map(bucket), [0, 0, 1, BUCKETS - 1]);
    }

    #[test]
    fn calls_of_many_threads_are_added_up() {
        let counts = Counts::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counts.ended("/bookstore.BookStore/Buy", Code::Ok, Duration::from_micros(3));
                    }
                    counts.ended("/made.Up/Name", Code::Unimplemented, Duration::from_secs(11));
                });
            }
        });
        let page = page(&counts);
        for line in [
            "grpc_calls_total{method=\"/bookstore.BookStore/Buy\",code=\"Ok\"} 4000",
            "grpc_calls_total{method=\"other\",code=\"Unimplemented\"} 4",
            "grpc_call_duration_seconds_sum{method=\"/bookstore.BookStore/Buy\"} 0.012",
            "grpc_call_duration_seconds_bucket{le=\"0.000002\",method=\"/bookstore.BookStore/Buy\"} 0",
            "grpc_call_duration_seconds_bucket{le=\"0.000005\",method=\"/bookstore.BookStore/Buy\"} 4000",
            "grpc_call_duration_seconds_bucket{le=\"+Inf\",method=\"/bookstore.BookStore/Buy\"} 4000",
            "grpc_call_duration_seconds_bucket{le=\"10.0\",method=\"other\"} 0",
            "grpc_call_duration_seconds_bucket{le=\"+Inf\",method=\"other\"} 4",
        ] {
            assert!(page.lines().any(|written| written == line), "{line} is missing in\n{page}");
        }
    }

    #[test]
    fn counts_of_two_servers_are_kept_apart() {
        let (first, second) = (Counts::default(), Counts::default());
        first.ended("/bookstore.BookStore/Buy", Code::Ok, Duration::ZERO);
        second.ended("/bookstore.BookStore/Buy", Code::Ok, Duration::ZERO);
        first.ended("/bookstore.BookStore/Buy", Code::Ok, Duration::ZERO);
        assert!(page(&first).contains("grpc_calls_total{method=\"/bookstore.BookStore/Buy\",code=\"Ok\"} 2"));
        assert!(page(&second).contains("grpc_calls_total{method=\"/bookstore.BookStore/Buy\",code=\"Ok\"} 1"));
    }
}
