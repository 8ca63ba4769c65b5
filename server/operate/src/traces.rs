//! Spans of ended calls, exported in batches to a collector over OTLP.
//!
//! Implements: OpenTelemetry Protocol 1.10, OTLP/gRPC, for traces.

use std::{
    array,
    fmt::{self, Display},
    hash::{BuildHasher as _, RandomState},
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hosting::{Client, PerSecond, metrics::Page};
use quire_rpc::{
    Code, Request, Status as Failure, TraceContext,
    client::{Channel, MethodConfig, ServiceConfig, Settings},
    details::RetryInfo,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

use self::opentelemetry::proto::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse, trace_service_client::TraceServiceClient,
    },
    common::v1::{AnyValue, InstrumentationScope, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span, SpanFlags, Status, span::SpanKind, status::StatusCode},
};

pub use self::opentelemetry::proto::common::v1::KeyValue;

/// The messages of `proto/opentelemetry`, nested as their packages are.
#[allow(clippy::all, clippy::pedantic, missing_docs, unreachable_pub, reason = "generated")]
mod opentelemetry {
    pub mod proto {
        pub mod collector {
            pub mod trace {
                pub mod v1 {
                    quire_rpc::include_proto!("opentelemetry.proto.collector.trace.v1");
                }
            }
        }
        pub mod common {
            pub mod v1 {
                quire_rpc::include_proto!("opentelemetry.proto.common.v1");
            }
        }
        pub mod resource {
            pub mod v1 {
                quire_rpc::include_proto!("opentelemetry.proto.resource.v1");
            }
        }
        pub mod trace {
            pub mod v1 {
                quire_rpc::include_proto!("opentelemetry.proto.trace.v1");
            }
        }
    }
}

/// Spans that wait for their export; further ones are dropped.
const WAITING_MAX: usize = 8192;
/// Spans in an export.
const BATCH_MAX: usize = 512;
/// Time that a smaller batch waits for more spans.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time of an export with all attempts, and of the wait for the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before the second attempt; each further one is twice as long.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Longest pause that a collector may ask for.
const PAUSE_MAX: Duration = Duration::from_mins(5);
/// Time between pings to the collector, and for their answers.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Least time between two lines about lost spans.
const LINES_INTERVAL: Duration = Duration::from_mins(1);
/// Bytes of a text of a span; what is beyond is cut off.
const TEXT_BYTES_MAX: usize = 256;
/// Bytes of `tracestate` in a span: those that every program has to pass on. A longer one is left out.
const STATE_BYTES_MAX: usize = 512;
/// Places that clients share by their hashes, for the bound on spans of callers.
const CLIENTS: usize = 64;
/// Codes after which OTLP allows another attempt; after `RESOURCE_EXHAUSTED` it does if the collector names the pause.
const RETRYABLE: [Code; 6] =
    [Code::Cancelled, Code::DeadlineExceeded, Code::Aborted, Code::OutOfRange, Code::Unavailable, Code::DataLoss];

/// The calls to trace, and the queue of their spans; clones are the same.
#[derive(Clone)]
pub struct Traces(Arc<Inner>);

struct Inner {
    /// Calls without a parent are traced if a random number is below.
    sampled_below: AtomicU64,
    /// Most spans a second that callers' flags begin.
    callers_per_second: AtomicU32,
    /// Those of all callers, and of the clients with each hash.
    of_callers: PerSecond,
    of_clients: [PerSecond; CLIENTS],
    hasher: RandomState,
    spans: mpsc::Sender<Span>,
    exported: AtomicU64,
    queue_full: AtomicU64,
    over_limit: AtomicU64,
    failed: AtomicU64,
    /// Time from which dropped spans are logged again.
    next_line: Mutex<Instant>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

/// A call that ended just now.
#[derive(Debug)]
pub struct Ended<'a> {
    /// The method.
    pub name: &'a str,
    /// Its span.
    pub own: &'a TraceContext,
    /// The caller's span, if any.
    pub parent: Option<[u8; 8]>,
    /// Its time.
    pub elapsed: Duration,
    /// True if the server is at fault.
    pub is_error: bool,
    /// Its attributes.
    pub attributes: Vec<KeyValue>,
}

/// An attribute with a text, of which a caller may have chosen the length.
pub fn text(key: &str, text: &str) -> KeyValue {
    attribute(key, Value::StringValue(cut(text).to_owned()))
}

/// An attribute with a number.
pub fn number(key: &str, number: impl TryInto<i64>) -> KeyValue {
    attribute(key, Value::IntValue(number.try_into().unwrap_or(i64::MAX)))
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// The calls to trace.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Share of the calls without a parent.
    pub sample: f64,
    /// Most spans a second that callers' flags begin.
    pub callers_per_second: u32,
}

/// Settings of a channel to a collector.
pub fn settings() -> Settings {
    let config = MethodConfig { timeout: Some(EXPORT_TIMEOUT), wait_for_ready: Some(true), repeat: None };
    Settings {
        service_config: ServiceConfig::default().with_method("", config),
        keepalive_interval: Some(KEEPALIVE),
        keepalive_timeout: KEEPALIVE,
        ..Settings::default()
    }
}

impl Traces {
    /// Traces calls as chosen, and exports spans over a channel with [`settings`].
    pub fn start(channel: Channel, sampling: Sampling) -> (Self, Exporting) {
        let (spans, waiting) = mpsc::channel(WAITING_MAX);
        let traces = Self::new(spans, sampling);
        let (stop, stopped) = watch::channel(None);
        let exporter = Exporter {
            inner: Arc::clone(&traces.0),
            batches: Batches { waiting, stopped },
            client: TraceServiceClient::new(channel),
            attributes: resource(),
            lost: 0,
            next_line: Instant::now(),
            not_before: Instant::now(),
        };
        (traces, Exporting { stop, task: tokio::spawn(exporter.run()) })
    }

    fn new(spans: mpsc::Sender<Span>, sampling: Sampling) -> Self {
        let [sampled_below, exported, queue_full, over_limit, failed] = [0; 5].map(AtomicU64::new);
        let (callers_per_second, of_callers, hasher) = Default::default();
        let of_clients = array::from_fn(|_| PerSecond::default());
        let inner = Inner {
            sampled_below,
            callers_per_second,
            of_callers,
            of_clients,
            hasher,
            spans,
            exported,
            queue_full,
            over_limit,
            failed,
            next_line: Mutex::new(Instant::now()),
        };
        let traces = Self(Arc::new(inner));
        traces.set(sampling);
        traces
    }

    /// Changes the choice of calls.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share is from 0 to 1; the cast is capped"
    )]
    pub fn set(&self, sampling: Sampling) {
        self.0.sampled_below.store((sampling.sample * 2f64.powi(64)) as u64, Relaxed);
        self.0.callers_per_second.store(sampling.callers_per_second, Relaxed);
    }

    /// Begins the span of a call: if its caller's is sampled, or by chance if it has none.
    pub fn begin(&self, caller: Option<&TraceContext>) -> Option<TraceContext> {
        let id = || fastrand::u64(1..).to_be_bytes();
        match caller {
            Some(caller) => caller.is_sampled.then(|| caller.child(id())),
            None if fastrand::u64(..) < self.0.sampled_below.load(Relaxed) => {
                Some(TraceContext::new(fastrand::u128(1..).to_be_bytes(), id()))
            }
            None => None,
        }
    }

    /// Takes a place among this second's spans of callers, of which one client has at most half.
    fn takes(&self, client: &Client) -> bool {
        let most = self.0.callers_per_second.load(Relaxed);
        let place = self.0.hasher.hash_one(client) % CLIENTS as u64;
        let of_client = &self.0.of_clients[usize::try_from(place).unwrap_or_default()];
        of_client.take(most.div_ceil(2)) && self.0.of_callers.take(most)
    }

    /// Queues the span of a call that ended. It is counted as dropped if the queue is full or, for one that its
    /// caller's flag began, beyond the bound.
    pub fn ended<'a>(&self, client: &Client, has_parent: bool, call: impl FnOnce() -> Ended<'a>) {
        if has_parent && !self.takes(client) {
            self.dropped(&self.0.over_limit);
        } else if let Ok(place) = self.0.spans.try_reserve() {
            place.send(span(call()));
        } else {
            self.dropped(&self.0.queue_full);
        }
    }

    /// Counts a dropped span, and logs the counts now and then.
    fn dropped(&self, count: &AtomicU64) {
        count.fetch_add(1, Relaxed);
        let Ok(mut next_line) = self.0.next_line.try_lock() else { return };
        let now = Instant::now();
        if now >= *next_line {
            *next_line = now + LINES_INTERVAL;
            let [queue_full, over_limit] = [&self.0.queue_full, &self.0.over_limit].map(|count| count.load(Relaxed));
            tracing::warn!(
                queue_full,
                over_limit,
                "spans are dropped, as the queue is full or trace.callers_per_second is reached; counted since the start"
            );
        }
    }

    /// Writes the counts of spans.
    pub fn show(&self, page: &mut Page<'_>) -> fmt::Result {
        let Inner { exported, queue_full, over_limit, failed, .. } = &*self.0;
        let counts =
            [("exported", exported), ("queue_full", queue_full), ("over_limit", over_limit), ("failed", failed)];
        let help = "Spans that a collector took, that found the queue full or were beyond trace.callers_per_second, and whose export failed";
        page.counters("trace_spans", help, "outcome", counts.map(|(outcome, count)| (outcome, count.load(Relaxed))))
    }
}

/// Attributes of this process, of which each has its own id.
fn resource() -> Vec<KeyValue> {
    // A UUID of version 4.
    let id = fastrand::u128(..) & !(0xf << 76 | 0xc << 60) | 4 << 76 | 8 << 60;
    let hex = format!("{id:032x}");
    let id = format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    let version = env!("CARGO_PKG_VERSION");
    vec![text("service.name", "quire"), text("service.version", version), text("service.instance.id", &id)]
}

/// The span of a call that ends now.
fn span(call: Ended<'_>) -> Span {
    let end = SystemTime::now();
    let nanos = |time: SystemTime| {
        u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
    };
    let remote = if call.parent.is_some() { SpanFlags::ContextIsRemoteMask as u32 } else { 0 };
    let code = if call.is_error { StatusCode::Error } else { StatusCode::Unset };
    Span {
        trace_id: call.own.trace_id.to_vec(),
        span_id: call.own.span_id.to_vec(),
        trace_state: Some(call.own.tracestate())
            .filter(|state| state.len() <= STATE_BYTES_MAX)
            .unwrap_or_default()
            .to_owned(),
        parent_span_id: call.parent.map(Vec::from).unwrap_or_default(),
        flags: 1 | SpanFlags::ContextHasIsRemoteMask as u32 | remote,
        name: cut(call.name).to_owned(),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: nanos(end - call.elapsed),
        end_time_unix_nano: nanos(end),
        attributes: call.attributes,
        status: Some(Status { code: code.into(), ..Status::default() }),
        ..Span::default()
    }
}

/// The running export.
#[derive(Debug)]
pub struct Exporting {
    /// The time at which it has to end, once it has.
    stop: watch::Sender<Option<Instant>>,
    task: JoinHandle<()>,
}

impl Exporting {
    /// Exports the spans that wait, for at most this time, and ends. With a collector that did not take the last ones,
    /// it ends at once.
    pub async fn finish(self, time: Duration) {
        self.stop.send_replace(Some(Instant::now() + time));
        // A panic is reported where it happens.
        let _ = self.task.await;
    }
}

/// The spans that wait, in batches.
struct Batches {
    waiting: mpsc::Receiver<Span>,
    /// Set once no further span will come.
    stopped: watch::Receiver<Option<Instant>>,
}

impl Batches {
    /// A full batch, or the spans of [`INTERVAL`] from its first one on, or the last ones; `None` at the end.
    async fn next(&mut self) -> Option<Vec<Span>> {
        let mut batch = Vec::new();
        let mut due = None;
        while batch.len() < BATCH_MAX {
            let room = BATCH_MAX - batch.len();
            tokio::select! {
                taken = self.waiting.recv_many(&mut batch, room) => {
                    if taken == 0 {
                        break;
                    }
                    due.get_or_insert_with(|| Instant::now() + INTERVAL);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => break,
                _ = self.stopped.wait_for(Option::is_some), if !self.waiting.is_closed() => self.waiting.close(),
            }
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Waits until it is stopped, and if its collector may be there, for the time that it then has.
    fn too_late(&self, is_away: bool) -> impl Future<Output = ()> + use<> {
        let mut stopped = self.stopped.clone();
        async move {
            let until = stopped.wait_for(Option::is_some).await.ok().and_then(|until| *until);
            if let Some(until) = until.filter(|_| !is_away) {
                sleep_until(until).await;
            }
        }
    }
}

struct Exporter {
    inner: Arc<Inner>,
    batches: Batches,
    client: TraceServiceClient,
    /// Attributes of this process.
    attributes: Vec<KeyValue>,
    /// Spans lost since the last line about them.
    lost: u64,
    next_line: Instant,
    /// End of the pause that the collector asked for, or that follows a failure.
    not_before: Instant,
}

impl Exporter {
    /// Exports until it is stopped and the queue is empty.
    async fn run(mut self) {
        let mut is_away = false;
        while let Some(batch) = self.batches.next().await {
            let count = batch.len() as u64;
            is_away = tokio::select! {
                biased;
                () = self.batches.too_late(is_away) => {
                    self.inner.failed.fetch_add(count, Relaxed);
                    self.lost += count;
                    true
                }
                is_exported = self.export(batch) => !is_exported,
            };
        }
        if self.lost > 0 {
            tracing::warn!(spans = self.lost, "spans were left at the stop: see trace.endpoint");
        }
    }

    /// False if the collector took none.
    async fn export(&mut self, spans: Vec<Span>) -> bool {
        sleep_until(self.not_before).await;
        let count = spans.len() as u64;
        let version = env!("CARGO_PKG_VERSION");
        let scope =
            InstrumentationScope { name: "quire".to_owned(), version: version.to_owned(), ..Default::default() };
        let resource_spans = vec![ResourceSpans {
            resource: Some(Resource { attributes: self.attributes.clone(), ..Resource::default() }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }];
        match self.attempt(ExportTraceServiceRequest { resource_spans }).await {
            Ok(reply) => {
                let partial = reply.partial_success.unwrap_or_default();
                let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(count);
                self.inner.exported.fetch_add(count - rejected, Relaxed);
                if rejected > 0 || !partial.error_message.is_empty() {
                    self.lose(rejected, &partial.error_message);
                }
                true
            }
            Err(status) => {
                self.lose(count, &status);
                false
            }
        }
    }

    /// Exports in as many attempts as OTLP allows and the time has.
    async fn attempt(&mut self, batch: ExportTraceServiceRequest) -> Result<ExportTraceServiceResponse, Failure> {
        let (until, mut backoff) = (Instant::now() + EXPORT_TIMEOUT, BACKOFF_FIRST);
        let left = || until.saturating_duration_since(Instant::now());
        loop {
            let mut request = Request::new(batch.clone());
            request.set_timeout(left());
            let failure = match self.client.export(request).await {
                Ok(reply) => return Ok(reply.into_inner()),
                Err(failure) => failure,
            };
            let Some(pause) = pause(&failure, backoff) else { return Err(failure) };
            if pause >= left() {
                self.not_before = Instant::now() + pause;
                return Err(failure);
            }
            sleep(pause).await;
            backoff *= 2;
        }
    }

    /// Counts spans that are lost, if any, and logs the reason now and then.
    fn lose(&mut self, spans: u64, error: &dyn Display) {
        self.inner.failed.fetch_add(spans, Relaxed);
        self.lost += spans;
        let now = Instant::now();
        if now >= self.next_line {
            self.next_line = now + LINES_INTERVAL;
            if spans > 0 {
                let spans = mem::take(&mut self.lost);
                tracing::warn!(spans, %error, "spans were not exported: see trace.endpoint");
            } else {
                tracing::warn!(%error, "the collector of traces has a warning");
            }
        }
    }
}

/// Time until another attempt after this failure, if OTLP allows one: that of the collector's answer, within bounds.
fn pause(failure: &Failure, backoff: Duration) -> Option<Duration> {
    let asked = failure.detail::<RetryInfo>().and_then(|info| Duration::try_from(info.retry_delay?).ok());
    let is_throttled = failure.code() == Code::ResourceExhausted && asked.is_some();
    let least = backoff.mul_f64(0.8 + 0.4 * fastrand::f64());
    let pause = asked.unwrap_or_default().max(least).min(PAUSE_MAX);
    (is_throttled || RETRYABLE.contains(&failure.code())).then_some(pause)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A channel to a collector that is away.
    fn away() -> Channel {
        let refuse = || async { Err::<tokio::io::DuplexStream, _>(io::Error::from(io::ErrorKind::ConnectionRefused)) };
        let builder = Channel::builder("http://collector").expect("an address").settings(settings());
        builder.connector(refuse).connect_lazy().expect("a channel")
    }

    fn end(traces: &Traces, own: &TraceContext) {
        let (name, elapsed) = ("a.B/C", Duration::ZERO);
        let call = || Ended { name, own, parent: None, elapsed, is_error: false, attributes: Vec::new() };
        traces.ended(&Client::Unknown, false, call);
    }

    const ALL: Sampling = Sampling { sample: 1.0, callers_per_second: 1000 };

    #[tokio::test(start_paused = true)]
    async fn callers_have_so_many_spans_a_second_and_one_client_half_of_them() {
        let (spans, mut waiting) = mpsc::channel(100);
        let traces = Traces::new(spans, Sampling { callers_per_second: 7, ..ALL });
        let own = TraceContext::new([1; 16], [2; 8]);
        let call = || {
            let (name, parent, elapsed) = ("a.B/C", Some([3; 8]), Duration::ZERO);
            Ended { name, own: &own, parent, elapsed, is_error: false, attributes: Vec::new() }
        };
        let mut exported = |client: &str, has_parent| {
            (0..10).for_each(|_| traces.ended(&Client::Credential(client.into()), has_parent, call));
            std::iter::from_fn(|| waiting.try_recv().ok()).count()
        };
        for _ in 0..3 {
            assert_eq!(exported("one", true), 4);
            // Chance has no such bound.
            assert_eq!(exported("one", false), 10);
            // Others that share its hash's place are few.
            let others: usize = (0..10).map(|other| exported(&format!("other {other}"), true)).sum();
            assert_eq!(others, 3);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(traces.0.over_limit.load(Relaxed), 3 * (6 + 97));
        traces.set(Sampling { callers_per_second: 0, ..ALL });
        assert_eq!((exported("one", true), exported("one", false)), (0, 10));
    }

    #[tokio::test]
    async fn a_parent_decides_and_chance_without_one() {
        let (traces, _exporting) = Traces::start(away(), Sampling { sample: 0.25, ..ALL });
        let parent = TraceContext::new([1; 16], [2; 8]);
        let own = traces.begin(Some(&parent)).expect("a span below a sampled one");
        assert_eq!((own.trace_id, own.is_sampled), ([1; 16], true));
        assert_ne!(own.span_id, [2; 8]);
        let unsampled = TraceContext::parse(b"00-01010101010101010101010101010101-0202020202020202-00");
        assert_eq!(traces.begin(unsampled.as_ref()), None);
        let begun: Vec<_> = (0..10_000).filter_map(|_| traces.begin(None)).collect();
        assert!((2000..3000).contains(&begun.len()), "{}", begun.len());
        let mut ids: Vec<_> = begun.iter().map(|own| (own.trace_id, own.span_id)).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), begun.len());
        for (sample, expected) in [(0.0, 0), (1.0, 100)] {
            traces.set(Sampling { sample, ..ALL });
            assert_eq!((0..100).filter_map(|_| traces.begin(None)).count(), expected);
        }
    }

    #[tokio::test]
    async fn a_span_has_no_text_of_a_callers_length() {
        let (spans, mut waiting) = mpsc::channel(1);
        let traces = Traces::new(spans, ALL);
        let long = "\u{e9}".repeat(30_000);
        for (members, bytes) in [(2, 511), (3, 0)] {
            let state = (0..members).map(|number| format!("{number}@a={}", "x".repeat(251))).collect::<Vec<_>>();
            let state = state.join(",");
            let parent = &b"00-01010101010101010101010101010101-0202020202020202-01"[..];
            let fields = || [(&b"traceparent"[..], parent), (b"tracestate", state.as_bytes())].into_iter();
            let own = TraceContext::of_fields(fields).expect("a context");
            assert_eq!(own.tracestate().len(), state.len());
            let attributes = vec![text("a", &long), text("b", "short")];
            let elapsed = Duration::ZERO;
            let call = || Ended { name: &long, own: &own, parent: None, elapsed, is_error: false, attributes };
            traces.ended(&Client::Unknown, false, call);
            let span = waiting.try_recv().expect("a span");
            assert_eq!((span.trace_state.len(), span.name.len()), (bytes, TEXT_BYTES_MAX));
            let cut = "\u{e9}".repeat(TEXT_BYTES_MAX / 2);
            assert_eq!(span.attributes, [text("a", &cut), text("b", "short")]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn spans_for_a_collector_that_is_away_are_dropped_and_counted_and_a_stop_is_bounded() {
        let (traces, exporting) = Traces::start(away(), ALL);
        let own = traces.begin(None).expect("a span");
        let counts = || [&traces.0.exported, &traces.0.queue_full, &traces.0.failed].map(|count| count.load(Relaxed));
        (0..WAITING_MAX + 7).for_each(|_| end(&traces, &own));
        assert_eq!(counts(), [0, 7, 0]);
        for _ in 0..2 {
            // The second time there was a pause before.
            sleep(EXPORT_TIMEOUT + BACKOFF_FIRST / 4).await;
            assert_eq!(counts(), [0, 7, BATCH_MAX as u64]);
        }
        let start = Instant::now();
        exporting.finish(Duration::from_secs(2)).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "as the last export failed");
        assert_eq!(counts(), [0, 7, WAITING_MAX as u64]);
    }

    #[test]
    fn a_collector_gets_the_pause_that_it_asks_for_within_bounds() {
        let second = Duration::from_secs(1);
        let asking = |code, seconds| {
            let retry_delay = Duration::from_secs(seconds).try_into().ok();
            pause(&Failure::new(code, "").with_detail(&RetryInfo { retry_delay }), second)
        };
        let usual = second.mul_f64(0.8)..=second.mul_f64(1.2);
        for code in [Code::ResourceExhausted, Code::Unavailable] {
            assert_eq!(asking(code, 7), Some(7 * second));
            assert_eq!(asking(code, i64::MAX as u64), Some(PAUSE_MAX));
            assert!(asking(code, 0).is_some_and(|pause| usual.contains(&pause)));
        }
        assert_eq!(asking(Code::InvalidArgument, 7), None);
        assert_eq!(pause(&Failure::new(Code::ResourceExhausted, ""), second), None);
        assert!(pause(&Failure::new(Code::Unavailable, ""), second).is_some_and(|pause| usual.contains(&pause)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_a_collector_that_may_be_there_and_counts_what_is_left() {
        let (traces, exporting) = Traces::start(away(), ALL);
        let own = traces.begin(None).expect("a span");
        (0..=BATCH_MAX).for_each(|_| end(&traces, &own));
        let start = Instant::now();
        exporting.finish(Duration::from_secs(2)).await;
        assert!((2000..2100).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
        assert_eq!(traces.0.failed.load(Relaxed), BATCH_MAX as u64 + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn spans_for_a_fast_collector_are_not_dropped_and_few_wait_for_more() {
        let (spans, waiting) = mpsc::channel(WAITING_MAX);
        let traces = Traces::new(spans, ALL);
        let own = traces.begin(None).expect("a span");
        let (stop, stopped) = watch::channel(None);
        let mut batches = Batches { waiting, stopped };
        let collector = tokio::spawn(async move {
            let mut taken = Vec::new();
            while let Some(batch) = batches.next().await {
                taken.push((batch.len(), Instant::now()));
            }
            taken
        });
        // The first batch is not full, and waits.
        let start = Instant::now();
        end(&traces, &own);
        sleep(INTERVAL * 2).await;
        for _ in 0..24 {
            (0..WAITING_MAX / 8).for_each(|_| end(&traces, &own));
            sleep(Duration::from_millis(40)).await;
        }
        (0..3).for_each(|_| end(&traces, &own));
        stop.send_replace(Some(Instant::now()));
        let taken = collector.await.expect("batches");
        assert_eq!(traces.0.queue_full.load(Relaxed), 0);
        let (first, at) = taken[0];
        assert_eq!((first, (at - start).as_millis() / 10), (1, INTERVAL.as_millis() / 10));
        let (full, last) = (&taken[1..taken.len() - 1], taken[taken.len() - 1].0);
        assert_eq!((full.len(), last), (3 * WAITING_MAX / BATCH_MAX, 3));
        assert!(full.iter().all(|(count, _)| *count == BATCH_MAX));
    }
}
