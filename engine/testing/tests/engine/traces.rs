//! Traces: the context of a call for its handler, and the report on a traced one for the observer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Running, text};
use crate::tower::Refusing;
use quire_rpc::client::{HttpVersion, Protocol, Settings};
use quire_rpc::server::{CallReport, HttpCalls, Observer};
use quire_rpc::{Code, Limits, Request, TraceContext};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;

/// Traces calls with a sampled caller, as the span 7.
#[derive(Default)]
struct Tracer {
    begun: AtomicUsize,
    is_polling: AtomicBool,
    spans: Mutex<Vec<Span>>,
}

/// Path, outcome, own context, and the caller's span.
type Span = (String, Code, TraceContext, Option<[u8; 8]>);

impl Observer for Tracer {
    fn wants_traces(&self) -> bool {
        true
    }

    fn trace(&self, caller: Option<&TraceContext>) -> Option<TraceContext> {
        let own = caller.filter(|caller| caller.is_sampled)?.child([7; 8]);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Some(own)
    }

    fn polling(&self) {
        self.is_polling.store(true, Ordering::Relaxed);
    }

    /// A nanosecond for each poll, or drop, of a handler.
    fn polled(&self) -> Duration {
        assert!(self.is_polling.swap(false, Ordering::Relaxed));
        Duration::from_nanos(1)
    }

    fn call_finished(&self, call: &CallReport<'_>) {
        let Some(details) = call.details else { return };
        let span = details.span.expect("a span, as no call has other details");
        assert_eq!(details.trace_id, Some(span.own.trace_id));
        let times = details.times;
        assert!(times.queued + times.handled + times.batched <= call.elapsed, "{call:?}");
        if call.path.ends_with("Late") {
            assert!(times.handled >= Duration::from_millis(20), "{times:?}");
            assert!(times.waited.as_nanos() >= 2, "{times:?}");
        } else if call.path.ends_with("Call") {
            assert_eq!(times.waited.as_nanos() == 1, !times.handled.is_zero(), "{times:?}");
        }
        self.spans.lock().unwrap().push((call.path.to_owned(), call.code, span.own.clone(), span.parent));
    }
}

/// Makes every call a part of trace 9, also if its caller has another.
#[derive(Default)]
struct Chance {
    states: Mutex<Vec<String>>,
}

impl Observer for Chance {
    fn wants_traces(&self) -> bool {
        true
    }

    fn trace(&self, _: Option<&TraceContext>) -> Option<TraceContext> {
        Some(TraceContext::new([9; 16], [7; 8]))
    }

    fn call_finished(&self, call: &CallReport<'_>) {
        let span = call.details.and_then(|details| details.span).expect("a span");
        self.states.lock().unwrap().push(span.own.tracestate().to_owned());
    }
}

#[tokio::test]
async fn a_span_has_the_state_of_its_own_trace_alone() {
    let chance = Arc::new(Chance::default());
    let observer = Arc::clone(&chance) as Arc<dyn Observer>;
    let server = Running::with(Limits::default(), |builder| builder.observer(observer)).await;
    let client = EchoClient::new(server.channel(Settings::default()).await);
    let ids = |trace: &str| format!("00-{}-00f067aa0ba902b7-01", trace.repeat(16));
    for parent in [None, Some("no parent".to_owned()), Some(ids("08")), Some(ids("09"))] {
        let mut request = Request::new(text("x"));
        let metadata = request.metadata_mut();
        if let Some(parent) = &parent {
            metadata.insert("traceparent", parent).unwrap();
        }
        metadata.append("tracestate", "a=1").unwrap();
        client.call(request).await.unwrap();
    }
    assert_eq!(*chance.states.lock().unwrap(), ["", "", "", "a=1"]);
}

fn caller(flags: &str) -> TraceContext {
    let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
    let fields = || [(&b"traceparent"[..], parent.as_bytes()), (b"tracestate", b"a=1")].into_iter();
    TraceContext::of_fields(fields).expect("a context")
}

#[tokio::test]
async fn a_handler_has_the_context_of_its_call_and_a_traced_call_its_span_over_every_protocol() {
    let sampled = caller("01");
    let own = sampled.child([7; 8]);
    for (protocol, http) in [
        (Protocol::Grpc, HttpVersion::Http2),
        (Protocol::GrpcWeb, HttpVersion::Http2),
        (Protocol::Connect, HttpVersion::Http2),
        (Protocol::GrpcWeb, HttpVersion::Http1),
        (Protocol::Connect, HttpVersion::Http1),
    ] {
        let (tracer, seen) = (Arc::new(Tracer::default()), Arc::new(Mutex::new(Vec::new())));
        let (observer, see) = (Arc::clone(&tracer) as Arc<dyn Observer>, Arc::clone(&seen));
        let look = move |_: &str, request: &mut Request<()>| {
            see.lock().unwrap().push(request.trace());
            Ok(())
        };
        let server = Running::with(Limits::default(), |builder| builder.observer(observer).interceptor(look)).await;
        let client = EchoClient::new(server.channel(Settings { protocol, http, ..Settings::default() }).await);
        let traced = |message: Message, flags: &str| {
            let mut request = Request::new(message);
            request.set_trace(&caller(flags));
            request
        };
        client.call(traced(text("x"), "01")).await.unwrap();
        client.call(traced(text("x"), "00")).await.unwrap();
        client.call(text("x")).await.unwrap();
        client.late(traced(Message { delay_ms: 20, ..text("x") }, "01")).await.unwrap();
        client.call(traced(Message { fail: 5, ..text("x") }, "01")).await.unwrap_err();
        let mut answers = client.many(traced(Message { count: 3, ..text("x") }, "01")).await.unwrap().into_inner();
        while answers.message().await.unwrap().is_some() {}
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        let expected = [Some(&own), Some(&caller("00")), None, Some(&own), Some(&own), Some(&own)];
        assert_eq!(seen.iter().map(Option::as_ref).collect::<Vec<_>>(), expected, "{protocol:?} {http:?}");
        let spans = std::mem::take(&mut *tracer.spans.lock().unwrap());
        let expected = [("Call", Code::Ok), ("Late", Code::Ok), ("Call", Code::NotFound), ("Many", Code::Ok)];
        let expected = expected
            .map(|(method, code)| (format!("/testing.Echo/{method}"), code, own.clone(), Some(sampled.span_id)));
        assert_eq!(spans, expected, "{protocol:?} {http:?}");
    }
}

#[tokio::test]
async fn a_handler_that_is_dropped_has_waited_until_then() {
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let tracer = Arc::new(Tracer::default());
        let observer = Arc::clone(&tracer) as Arc<dyn Observer>;
        let server = Running::with(Limits::default(), |builder| builder.observer(observer)).await;
        let settings = Settings { protocol: Protocol::Connect, http, ..Settings::default() };
        let client = EchoClient::new(server.channel(settings).await);
        let mut request = Request::new(Message { delay_ms: 60_000, ..text("x") });
        request.set_trace(&caller("01"));
        request.set_timeout(Duration::from_millis(30));
        client.late(request).await.unwrap_err();
        let ended = async {
            while tracer.spans.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("a span with both waits");
    }
}

#[tokio::test]
async fn a_call_behind_layers_has_one_span_also_if_a_layer_refuses_it() {
    for (http, is_refused) in [(HttpVersion::Http2, false), (HttpVersion::Http1, false), (HttpVersion::Http2, true)] {
        let tracer = Arc::new(Tracer::default());
        let observer = Arc::clone(&tracer) as Arc<dyn Observer>;
        let server = Running::with(Limits::default(), |builder| {
            let builder = builder.observer(observer);
            if is_refused {
                builder.layer(::tower::layer::layer_fn(|_: HttpCalls| Refusing))
            } else {
                builder.layer(::tower::layer::util::Identity::new())
            }
        })
        .await;
        let settings = Settings { protocol: Protocol::Connect, http, ..Settings::default() };
        let client = EchoClient::new(server.channel(settings).await);
        let mut request = Request::new(text("x"));
        request.set_trace(&caller("01"));
        assert_eq!(client.call(request).await.is_err(), is_refused);
        let spans = std::mem::take(&mut *tracer.spans.lock().unwrap());
        assert_eq!((tracer.begun.load(Ordering::Relaxed), spans.len()), (1, 1), "{http:?} {spans:?}");
        assert_eq!(spans[0].3, Some(caller("01").span_id));
    }
}
