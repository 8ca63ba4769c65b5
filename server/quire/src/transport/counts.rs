//! Counters of calls by method, status and time, and their metrics.

use std::{
    cell::RefCell,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
    registry::Unit,
};
use quire_rpc::Code;

/// Label for calls of unknown methods.
const OTHER: &str = "other";

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

/// A counter with one writing thread and any readers: adding needs no locked instruction, which costs about twenty
/// times as much, contended or not.
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

/// One thread's counts by method; no other thread writes to it, nor to adjacent cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Box<[Calls]>);

#[derive(Debug)]
struct Shared {
    /// `/package.Service/Method`, and [`OTHER`] last.
    methods: Vec<String>,
    /// One for each thread that ever ended a call; a server starts its threads once.
    shards: Mutex<Vec<Arc<Shard>>>,
}

thread_local! {
    /// This thread's shard, and its owner.
    static OWN: RefCell<Option<(Arc<Shared>, Arc<Shard>)>> = const { RefCell::new(None) };
}

/// Counters by method, status and time; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Counts(Arc<Shared>);

impl Counts {
    /// Counts calls of these methods, and all others as `other`.
    pub(super) fn new<'a>(methods: impl Iterator<Item = &'a str>) -> Self {
        let methods = methods.chain([OTHER]).map(str::to_owned).collect();
        Self(Arc::new(Shared { methods, shards: Mutex::default() }))
    }

    /// Counts the calls of a server that has these methods, in this order.
    pub(super) fn of_server<'a>(&self, methods: impl Iterator<Item = &'a str>) -> MethodCounts {
        let other = self.0.methods.len() - 1;
        let place = |method| self.0.methods.iter().position(|known| known == method).unwrap_or(other);
        MethodCounts { counts: self.clone(), places: methods.map(place).collect(), other }
    }

    fn add(&self, method: usize, code: Code, elapsed: Duration) {
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
            Some((shared, shard)) if Arc::ptr_eq(shared, &self.0) => count(shard),
            _ => {
                let shard = Arc::new(Shard(self.0.methods.iter().map(|_| Calls::default()).collect()));
                self.0.shards.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&shard));
                count(&shard);
                *own = Some((Arc::clone(&self.0), shard));
            }
        });
    }

    fn sum(shards: &[Arc<Shard>], pick: impl Fn(&Shard) -> &Tally) -> u64 {
        shards.iter().map(|shard| pick(shard).get()).fold(0, u64::wrapping_add)
    }
}

/// Counts one server's calls by its method numbers.
#[derive(Debug)]
pub(super) struct MethodCounts {
    counts: Counts,
    /// Index of each method's counter.
    places: Vec<usize>,
    other: usize,
}

impl MethodCounts {
    pub(super) fn ended(&self, method: Option<usize>, code: Code, elapsed: Duration) {
        let place = method.and_then(|method| self.places.get(method)).unwrap_or(&self.other);
        self.counts.add(*place, code, elapsed);
    }
}

/// Bucket of a duration; bounds are inclusive, as in the text format.
fn bucket(nanos: u64) -> usize {
    BOUNDS_NS.partition_point(|bound| *bound < nanos)
}

#[expect(clippy::cast_precision_loss, reason = "shown in seconds; 2^53 ns are a hundred days of calls")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shards = self.0.shards.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let help = "gRPC calls that ended, by method and status";
        let mut metric = encoder.encode_descriptor("grpc_calls", help, None, MetricType::Counter)?;
        for (method, name) in self.0.methods.iter().enumerate() {
            for code in 0..CODES {
                let count = Self::sum(&shards, |shard| &shard.0[method].by_code[code]);
                if count > 0 {
                    let code = Code::from_number(u32::try_from(code).unwrap_or_default());
                    let labels = [("method", name.clone()), ("code", format!("{code:?}"))];
                    ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        let help = "From a call's arrival until its answer was about to be written";
        let unit = Some(&Unit::Seconds);
        let mut metric = encoder.encode_descriptor("grpc_call_duration", help, unit, MetricType::Histogram)?;
        let bounds = || BOUNDS_NS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        for (method, name) in self.0.methods.iter().enumerate() {
            let count = |place: usize| Self::sum(&shards, |shard| &shard.0[method].by_time[place]);
            let buckets: Vec<(f64, u64)> = bounds().enumerate().map(|(place, bound)| (bound, count(place))).collect();
            let calls = buckets.iter().map(|(_, count)| count).sum();
            if calls > 0 {
                let nanos = Self::sum(&shards, |shard| &shard.0[method].nanos);
                let labels = [("method", &**name)];
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

    const METHODS: [&str; 2] = ["/bookstore.BookStore/Lookup", "/bookstore.BookStore/Buy"];

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
        let counts = Counts::new(METHODS.into_iter());
        let server = counts.of_server(METHODS.into_iter());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        server.ended(Some(1), Code::Ok, Duration::from_micros(3));
                    }
                    server.ended(None, Code::Unimplemented, Duration::from_secs(11));
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
    fn servers_with_other_numbers_for_a_method_count_it_together() {
        let counts = Counts::new(METHODS.into_iter());
        let (first, second) = (counts.of_server(METHODS.into_iter()), counts.of_server(METHODS.into_iter().rev()));
        first.ended(Some(1), Code::Ok, Duration::ZERO);
        second.ended(Some(0), Code::Ok, Duration::ZERO);
        assert!(page(&counts).contains("grpc_calls_total{method=\"/bookstore.BookStore/Buy\",code=\"Ok\"} 2"));
    }

    #[test]
    fn counts_of_two_processes_in_one_are_kept_apart() {
        let counts = || Counts::new(METHODS.into_iter());
        let (first, second) = (counts(), counts());
        let ended = |counts: &Counts| counts.of_server(METHODS.into_iter()).ended(Some(1), Code::Ok, Duration::ZERO);
        ended(&first);
        ended(&second);
        ended(&first);
        assert!(page(&first).contains("grpc_calls_total{method=\"/bookstore.BookStore/Buy\",code=\"Ok\"} 2"));
        assert!(page(&second).contains("grpc_calls_total{method=\"/bookstore.BookStore/Buy\",code=\"Ok\"} 1"));
    }
}
