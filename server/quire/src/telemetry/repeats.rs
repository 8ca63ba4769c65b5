//! Rate limit of the log, so that no client fills a disk: each kind of line is written a limited number of times a
//! second for one address and for all, and those left out are counted.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::Debug,
    hash::Hash,
    net::{IpAddr, SocketAddr},
    sync::{LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hosting::UNBOUNDED;
use tracing::{
    Event, Level, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context};

use super::calls;

/// Rate of a kind's lines for one address.
const OF_ADDRESS: Rate = Rate { burst: 20, per_second: 5 };
/// Rate of a kind's lines for all addresses together.
const OF_KIND: Rate = Rate { burst: 200, per_second: 50 };
/// Most pairs of kind and address remembered; further addresses count together.
const ENTRIES_MAX: usize = 4096;
/// Interval at which the number of lines left out is logged.
const INTERVAL: Duration = Duration::from_secs(1);
/// Length to which a line's message is cut beside its count.
const MESSAGE_CHARS_MAX: usize = 100;
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    per_second: u32,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    left: u32,
    at: Instant,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self { rate, left: rate.burst, at: now }
    }

    fn refill(&mut self, now: Instant) {
        let pause = Duration::from_secs(1) / self.rate.per_second;
        let pauses = now.saturating_duration_since(self.at).as_nanos() / pause.as_nanos();
        let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
        if pauses >= self.rate.burst - self.left {
            (self.left, self.at) = (self.rate.burst, now);
        } else {
            self.left += pauses;
            self.at += pause * pauses;
        }
    }

    fn is_full(&self) -> bool {
        self.left == self.rate.burst
    }
}

/// Lines of a kind for one address.
#[derive(Debug)]
struct Lines {
    bucket: Bucket,
    left_out: u64,
}

/// Lines of a kind that were left out.
#[derive(Debug, PartialEq, Eq)]
struct LeftOut<K> {
    kind: K,
    lines: u64,
    addresses: usize,
    /// The address with the most of them.
    address: Option<IpAddr>,
    most: u64,
}

#[derive(Debug)]
struct Repeats<K> {
    kinds: HashMap<K, Bucket>,
    lines: HashMap<(K, Option<IpAddr>), Lines>,
}

impl<K: Clone + Eq + Hash> Repeats<K> {
    fn new() -> Self {
        Self { kinds: HashMap::new(), lines: HashMap::new() }
    }

    /// True if another line of the kind may be written; otherwise counts it as left out.
    fn may_write(&mut self, kind: &K, address: Option<IpAddr>, now: Instant) -> bool {
        let key = (kind.clone(), address);
        let key = if self.lines.len() < ENTRIES_MAX || self.lines.contains_key(&key) { key } else { (key.0, None) };
        let lines = self.lines.entry(key);
        let lines = lines.or_insert_with(|| Lines { bucket: Bucket::full(OF_ADDRESS, now), left_out: 0 });
        let of_kind = self.kinds.entry(kind.clone()).or_insert_with(|| Bucket::full(OF_KIND, now));
        lines.bucket.refill(now);
        of_kind.refill(now);
        if lines.bucket.left == 0 || of_kind.left == 0 {
            lines.left_out += 1;
            return false;
        }
        lines.bucket.left -= 1;
        of_kind.left -= 1;
        true
    }

    /// Takes the counts, and forgets the addresses that have been quiet.
    fn take_left_out(&mut self, now: Instant) -> Vec<LeftOut<K>> {
        let mut found = HashMap::<K, LeftOut<K>>::new();
        for ((kind, address), lines) in &mut self.lines {
            lines.bucket.refill(now);
            let count = std::mem::take(&mut lines.left_out);
            if count == 0 {
                continue;
            }
            match found.entry(kind.clone()) {
                Entry::Vacant(new) => {
                    let (kind, address) = (kind.clone(), *address);
                    new.insert(LeftOut { kind, lines: count, addresses: 1, address, most: count });
                }
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    known.lines += count;
                    known.addresses += 1;
                    if count > known.most {
                        (known.most, known.address) = (count, *address);
                    }
                }
            }
        }
        self.lines.retain(|_, lines| !lines.bucket.is_full());
        found.into_values().collect()
    }
}

/// The lines of this process, and the message of each kind that was left out.
struct Log {
    repeats: Repeats<Identifier>,
    messages: HashMap<Identifier, (Level, String)>,
}

static LOG: LazyLock<Mutex<Log>> =
    LazyLock::new(|| Mutex::new(Log { repeats: Repeats::new(), messages: HashMap::new() }));

/// Leaves lines out, except those below INFO: whoever enables them wants all.
#[derive(Debug)]
pub(super) struct Bounded;

impl<S: Subscriber> Layer<S> for Bounded {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || [UNBOUNDED, calls::TARGET].contains(&metadata.target()) {
            return true;
        }
        let mut address = Address(None);
        event.record(&mut address);
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        let may_write = log.repeats.may_write(&metadata.callsite(), address.0, Instant::now());
        if !may_write {
            log.messages.entry(metadata.callsite()).or_insert_with(|| {
                let mut message = Message::default();
                event.record(&mut message);
                (*metadata.level(), message.0)
            });
        }
        may_write
    }
}

/// Logs the lines left out at each interval, for as long as it is polled.
pub(crate) async fn show_left_out() {
    loop {
        tokio::time::sleep(INTERVAL).await;
        show_left_out_now();
    }
}

/// Logs the number of lines left out since the last time.
pub(crate) fn show_left_out_now() {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let left_out = log.repeats.take_left_out(Instant::now());
    let mut messages = std::mem::take(&mut log.messages);
    // Not held while lines are written.
    drop(log);
    for LeftOut { kind, lines, addresses, address, .. } in left_out {
        let Some((level, line)) = messages.remove(&kind) else { continue };
        let address = address.map(tracing::field::display);
        match level {
            Level::ERROR => tracing::error!(target: UNBOUNDED, lines, line, addresses, address, "lines were left out"),
            Level::WARN => tracing::warn!(target: UNBOUNDED, lines, line, addresses, address, "lines were left out"),
            _ => tracing::info!(target: UNBOUNDED, lines, line, addresses, address, "lines were left out"),
        }
    }
}

/// The client's address in a line's fields.
struct Address(Option<IpAddr>);

impl Visit for Address {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if ["peer", "address"].contains(&field.name()) {
            let text = format!("{value:?}");
            self.0 = text.parse().or_else(|_| text.parse().map(|address: SocketAddr| address.ip())).ok();
        }
    }
}

/// A line's message, without its fields.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}").chars().take(MESSAGE_CHARS_MAX).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        number.to_be_bytes().into()
    }

    #[test]
    fn an_address_gets_some_lines_of_a_kind_and_the_rest_is_counted() {
        let (mut repeats, start) = (Repeats::new(), Instant::now());
        let mut written = 0;
        for millisecond in 0..10_000 {
            let now = start + Duration::from_millis(millisecond);
            written += u64::from(repeats.may_write(&"bad line", Some(address(1)), now));
        }
        assert_eq!(written, 20 + 5 * 10 - 1);
        let now = start + Duration::from_secs(10);
        assert!(
            repeats.may_write(&"bad head", Some(address(1)), now)
                && repeats.may_write(&"bad line", Some(address(2)), now)
        );
        let lines = 10_000 - written;
        let expected = LeftOut { kind: "bad line", lines, addresses: 1, address: Some(address(1)), most: lines };
        assert_eq!(repeats.take_left_out(now), [expected]);
        assert_eq!(repeats.take_left_out(now + Duration::from_mins(1)), []);
        assert!(repeats.lines.is_empty(), "what is quiet is forgotten");
    }

    #[test]
    fn many_addresses_together_get_some_lines_too_and_are_counted_in_bounded_memory() {
        let (mut repeats, now) = (Repeats::new(), Instant::now());
        let written = (0..20_000).filter(|number| repeats.may_write(&"bad line", Some(address(*number)), now)).count();
        assert_eq!(written, 200);
        assert!(repeats.lines.len() <= ENTRIES_MAX + 1);
        let left_out = repeats.take_left_out(now);
        assert_eq!(left_out.iter().map(|left_out| left_out.lines).collect::<Vec<_>>(), [20_000 - 200]);
    }
}
