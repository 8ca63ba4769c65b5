//! Our channel against our server: every kind of call, and its failures.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{NEVER, Running, begin, open, text};
use quire_rpc::client::Settings;
use quire_rpc::server::{CallReport, Client, Method, Observer};
use quire_rpc::{Code, Encoding, Limits, Request, Response, Stream};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;
use tokio::task::JoinSet;

/// Stream of messages from a list.
struct List(Vec<Message>);

impl Stream for List {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Message>> {
        Poll::Ready(if self.0.is_empty() { None } else { Some(self.0.remove(0)) })
    }
}

#[tokio::test]
async fn unary_call_carries_message_and_metadata_both_ways() {
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;
    let mut request = Request::new(text("hello"));
    request.metadata_mut().append("echo-a", "1").unwrap();
    request.metadata_mut().append("echo-a", "2").unwrap();
    let response = client.call(request).await.unwrap();
    assert_eq!(response.get_ref().payload, b"hello");
    assert_eq!(response.metadata().get_all("echo-a").collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(response.trailers().get("echo-a"), Some("1"));
    assert_eq!(server.stopped().await.get("/testing.Echo/Call OK"), 1);
}

/// Records the durations of calls.
#[derive(Default)]
struct Times(Mutex<Vec<Duration>>);

impl Observer for Times {
    fn call_finished(&self, call: &CallReport<'_>) {
        self.0.lock().unwrap().push(call.elapsed);
    }
}

#[tokio::test]
async fn time_of_a_call_is_reported_before_its_answer_whether_it_waits_or_keeps_its_thread() {
    const DELAY_MS: u32 = 20;
    let times = Arc::new(Times::default());
    let server =
        Running::with(Limits::default(), |builder| builder.observer(Arc::clone(&times) as Arc<dyn Observer>)).await;
    let client = server.client().await;
    let slow = Message { delay_ms: DELAY_MS, ..Message::default() };
    client.call(slow.clone()).await.unwrap();
    client.late(slow).await.unwrap();
    let times = times.0.lock().unwrap();
    assert_eq!(times.len(), 2);
    assert!(times.iter().all(|time| *time >= Duration::from_millis(DELAY_MS.into())), "{times:?}");
}

/// Records the details of calls, if wanted.
#[derive(Default)]
struct Details {
    is_wanted: Arc<AtomicBool>,
    calls: Mutex<Vec<Option<Detail>>>,
}

/// Path, outcome, credential, request id, and bytes in and out.
type Detail = (String, Code, Option<String>, Option<Vec<u8>>, usize, usize);

impl Observer for Details {
    fn wants_details(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_wanted)
    }

    fn call_finished(&self, call: &CallReport<'_>) {
        let details = call.details.map(|details| {
            assert!(details.peer.is_some_and(|peer| peer.ip().is_loopback()));
            let bytes = |bytes| usize::try_from(bytes).unwrap();
            let (credential, id) = (details.credential.map(str::to_owned), details.request_id.map(<[u8]>::to_vec));
            (call.path.to_owned(), call.code, credential, id, bytes(details.bytes_in), bytes(details.bytes_out))
        });
        self.calls.lock().unwrap().push(details);
    }
}

/// A server whose callers have the credential `till` if they send a request id.
async fn detailed(is_wanted: bool) -> (Running, Arc<Details>) {
    let details = Arc::new(Details { is_wanted: Arc::new(is_wanted.into()), ..Details::default() });
    let observer = Arc::clone(&details) as Arc<dyn Observer>;
    let named = |_: &str, request: &mut Request<()>| {
        if request.metadata().get("x-request-id").is_some() {
            request.extensions_mut().insert(Client::Credential(Arc::from("till")));
        }
        Ok(())
    };
    (Running::with(Limits::default(), |builder| builder.observer(observer).interceptor(named)).await, details)
}

/// Length of messages with their prefixes.
fn framed(messages: &[Message]) -> usize {
    messages.iter().map(|message| 5 + quire_rpc::prost::Message::encoded_len(message)).sum()
}

#[tokio::test]
async fn details_of_a_call_have_its_caller_and_the_bytes_of_all_its_messages() {
    let (server, details) = detailed(true).await;
    let client = server.client().await;
    let mut expected = Vec::new();
    let mut expect = |path: &str, code: Code, is_named: bool, bytes_in: usize, bytes_out: usize| {
        let (credential, id) = (is_named.then(|| "till".to_owned()), is_named.then(|| b"7".to_vec()));
        expected.push(Some((format!("/testing.Echo/{path}"), code, credential, id, bytes_in, bytes_out)));
    };
    let mut named = Request::new(text("hello"));
    named.metadata_mut().append("x-request-id", "7").unwrap();
    let reply = client.call(named).await.unwrap().into_inner();
    expect("Call", Code::Ok, true, framed(&[text("hello")]), framed(&[reply]));
    let reply = client.call(text("nameless")).await.unwrap().into_inner();
    expect("Call", Code::Ok, false, framed(&[text("nameless")]), framed(&[reply]));
    let failing = Message { fail: 5, ..text("x") };
    client.call(failing.clone()).await.unwrap_err();
    expect("Call", Code::NotFound, false, framed(&[failing]), 0);
    let late = Message { delay_ms: 1, ..text("later") };
    let reply = client.late(late.clone()).await.unwrap().into_inner();
    expect("Late", Code::Ok, false, framed(&[late]), framed(&[reply]));
    let many = Message { count: 1000, ..text("x") };
    let (mut replies, mut received) = (client.many(many.clone()).await.unwrap().into_inner(), Vec::new());
    while let Some(message) = replies.message().await.unwrap() {
        received.push(message);
    }
    expect("Many", Code::Ok, false, framed(&[many]), framed(&received));
    let parts = ["a", "b", "c"].map(text).to_vec();
    let joined = client.join(List(parts.clone())).await.unwrap().into_inner();
    expect("Join", Code::Ok, false, framed(&parts), framed(&[joined]));
    assert_eq!(*details.calls.lock().unwrap(), expected);
}

#[tokio::test]
async fn details_are_left_out_unless_they_are_wanted_when_a_call_begins() {
    let (server, details) = detailed(false).await;
    let client = server.client().await;
    for is_wanted in [false, true, false, true] {
        details.is_wanted.store(is_wanted, Ordering::Relaxed);
        client.call(text("hello")).await.unwrap();
        let (sender, mut echoes) = open(&client).await;
        sender.send(text("x")).await.unwrap();
        echoes.message().await.unwrap().unwrap();
        details.is_wanted.store(!is_wanted, Ordering::Relaxed);
        drop(sender);
        assert!(echoes.message().await.unwrap().is_none());
        let calls = std::mem::take(&mut *details.calls.lock().unwrap());
        assert_eq!(calls.iter().map(Option::is_some).collect::<Vec<_>>(), [is_wanted; 2]);
    }
}

#[tokio::test]
async fn streams_flow_in_every_direction() {
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;

    let many = Message { count: 1000, ..text("x") };
    let mut replies = client.many(many).await.unwrap().into_inner();
    let mut count = 0;
    while let Some(message) = replies.message().await.unwrap() {
        assert_eq!(message.payload, b"x");
        count += 1;
    }
    assert_eq!(count, 1000);

    let parts = List(["a", "b", "c"].map(text).to_vec());
    let joined = client.join(parts).await.unwrap().into_inner();
    assert_eq!((joined.payload.as_slice(), joined.count), (&b"abc"[..], 3));

    let parts = List((0..300).map(|n| text(&n.to_string())).collect());
    let mut echoes = client.each(parts).await.unwrap().into_inner();
    for n in 0..300 {
        assert_eq!(echoes.message().await.unwrap().unwrap().payload, n.to_string().as_bytes());
    }
    assert!(echoes.message().await.unwrap().is_none());
}

#[tokio::test]
async fn ping_pong_over_one_stream_waits_for_each_answer() {
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;
    let (sender, mut echoes) = open(&client).await;
    for n in 0..50 {
        sender.send(text(&n.to_string())).await.unwrap();
        assert_eq!(echoes.message().await.unwrap().unwrap().payload, n.to_string().as_bytes());
    }
    drop(sender);
    assert!(echoes.message().await.unwrap().is_none());
}

#[tokio::test]
async fn large_messages_pass_windows_of_any_size() {
    let mut limits = Limits::default();
    limits.http2.stream_window_bytes = 1000;
    let server = Running::new(limits).await;
    let mut settings = Settings::default();
    settings.http2.stream_window_bytes = 5000;
    let client = EchoClient::new(server.channel(settings).await);
    let payload: Vec<u8> = (0..1_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let response = client.call(Message { payload: payload.clone(), ..Message::default() }).await.unwrap();
    assert!(response.get_ref().payload == payload);
}

#[tokio::test]
async fn messages_are_compressed_both_ways() {
    for encoding in [Encoding::Gzip, Encoding::Zstd, Encoding::Brotli, Encoding::Deflate, Encoding::Snappy] {
        let server = Running::with(Limits::default(), |builder| builder.compress(encoding, 100)).await;
        let settings = Settings { compression: Some((encoding, 100)), ..Settings::default() };
        let client = EchoClient::new(server.channel(settings).await);
        let long = "long ".repeat(10_000);
        assert_eq!(client.call(text(&long)).await.unwrap().get_ref().payload, long.as_bytes());
        assert_eq!(client.call(text("short")).await.unwrap().get_ref().payload, b"short");
    }
}

#[tokio::test]
async fn failures_and_panics_stay_in_their_call() {
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;
    let fail = |code| Message { fail: code, ..Message::default() };
    let status = client.call(fail(9)).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "told to fail"));
    let status = client.call(fail(666)).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert_eq!(client.many(fail(5)).await.unwrap_err().code(), Code::NotFound);
    assert!(client.call(text("still here")).await.is_ok());
    assert_eq!(server.stopped().await.get("opened"), 1);
}

#[tokio::test]
async fn messages_over_the_limit_are_resource_exhausted_on_either_side() {
    let server = Running::new(Limits { message_bytes_max: 1000, ..Limits::default() }).await;
    let client = server.client().await;
    let status = client.call(text(&"x".repeat(1001))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let too_long = List(vec![text(&"x".repeat(1001))]);
    assert_eq!(client.join(too_long).await.unwrap_err().code(), Code::ResourceExhausted);
    let settings = Settings { message_bytes_max: 10, ..Settings::default() };
    let narrow = EchoClient::new(server.channel(settings).await);
    assert_eq!(narrow.call(text(&"x".repeat(100))).await.unwrap_err().code(), Code::ResourceExhausted);
    assert!(narrow.call(text("x")).await.is_ok());
}

#[tokio::test]
async fn deadline_ends_the_call_on_both_sides() {
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;
    let mut request = Request::new(Message { delay_ms: 60_000, ..Message::default() });
    request.set_timeout(Duration::from_millis(50));
    assert_eq!(client.late(request).await.unwrap_err().code(), Code::DeadlineExceeded);
    let ended = ["DEADLINE_EXCEEDED", "CANCELLED"].map(|how| format!("/testing.Echo/Late {how}"));
    server.counts.until(|counts| ended.iter().any(|how| counts.get(how) == 1)).await;
    let mut request = Request::new(text("x"));
    request.set_timeout(Duration::ZERO);
    assert_eq!(client.call(request).await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn each_call_tells_its_own_timeout() {
    let (told, heard) = std::sync::mpsc::channel();
    let note = move |_: &str, request: &mut Request<()>| {
        let left = request.deadline().map(|deadline| deadline.saturating_duration_since(tokio::time::Instant::now()));
        let _ = told.send(left.map(|left| left.as_millis().div_ceil(1000)));
        Ok(())
    };
    let server = Running::with(Limits::default(), |builder| builder.interceptor(note)).await;
    let client = server.client().await;
    for seconds in [Some(40), Some(40), Some(40), None, Some(600), Some(40), None] {
        let mut request = Request::new(text("x"));
        if let Some(seconds) = seconds {
            request.set_timeout(Duration::from_secs(seconds));
        }
        client.call(request).await.unwrap();
        assert_eq!(heard.recv().unwrap(), seconds.map(u128::from));
    }
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_the_server() {
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;
    let slow = client.clone();
    let slow = begin(&client, async move { slow.late(NEVER).await }).await;
    slow.abort();
    let endless = Message { count: u32::MAX, ..text("x") };
    let mut stream = client.many(endless).await.unwrap().into_inner();
    stream.message().await.unwrap();
    drop(stream);
    let cancelled = ["/testing.Echo/Late CANCELLED", "/testing.Echo/Many CANCELLED"];
    server.counts.until(|counts| cancelled.map(|call| counts.get(call)) == [1, 1]).await;
}

#[tokio::test]
async fn waiting_calls_do_not_hold_up_others() {
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        let waiting = client.clone();
        slow.push(begin(&client, async move { waiting.late(NEVER).await }).await);
    }
    assert_eq!(server.server.calls(), 100);
    assert!(slow.iter().all(|call| !call.is_finished()));
    for call in slow {
        call.abort();
    }
    server.counts.until(|counts| counts.get("/testing.Echo/Late CANCELLED") == 100).await;
}

#[tokio::test]
async fn slow_reader_stops_only_its_own_stream() {
    const MESSAGE_BYTES: usize = 10_000;
    let server = Running::new(Limits::default()).await;
    let mut settings = Settings { unread_bytes_max: 50_000, ..Settings::default() };
    settings.http2.stream_window_bytes = 100_000;
    let channel = server.channel(settings).await;
    let client = EchoClient::new(channel.clone());
    let endless = Message { count: u32::MAX, ..text(&"x".repeat(MESSAGE_BYTES)) };
    let mut replies = client.many(endless).await.unwrap().into_inner();
    // Each of these lets the stream send a frame, if its window allows.
    for _ in 0..200 {
        client.call(text("quick")).await.unwrap();
    }
    let received = channel.traffic().received_bytes;
    let quick_bytes = 200 * 100;
    assert!(received < 50_000 + 100_000 + 20_000 + quick_bytes, "{received} bytes came though no one reads");
    for _ in 0..100 {
        assert_eq!(
            replies.message().await.unwrap().unwrap().payload.len(),
            MESSAGE_BYTES,
            "it goes on when it is read"
        );
    }
}

/// On a runtime with worker threads, which run the connection's task right after the first caller that calls again.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_that_were_answered_together_call_again_in_one_write() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings::default()).await;
    let client = EchoClient::new(channel.clone());
    let mut callers = JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        callers.spawn(async move {
            for _ in 0..20 {
                client.call(text("again")).await.unwrap();
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done.unwrap();
    }
    let writes = channel.traffic().writes;
    assert!(writes < 1000 / 4, "{writes} writes for 1,000 calls");
}

#[tokio::test]
async fn unknown_methods_and_services_are_unimplemented() {
    use rpc_testing::interop_proto::Empty;
    use rpc_testing::interop_proto::unimplemented_service_client::UnimplementedServiceClient;
    let server = Running::new(Limits::default()).await;
    let client = UnimplementedServiceClient::new(server.channel(Settings::default()).await);
    assert_eq!(client.unimplemented_call(Empty {}).await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(server.stopped().await.get("unknown UNIMPLEMENTED"), 1, "strangers' names are not kept");
}

#[tokio::test]
async fn a_fallback_answers_what_no_service_has_and_nothing_else() {
    use rpc_testing::interop_proto::Empty;
    use rpc_testing::interop_proto::unimplemented_service_client::UnimplementedServiceClient;
    let fallback = Method::unary("fallback", Arc::new(()), |_, _: Request<()>| async { Ok(Response::new(())) });
    let server = Running::with(Limits::default(), |builder| builder.fallback(fallback)).await;
    let stranger = UnimplementedServiceClient::new(server.channel(Settings::default()).await);
    stranger.unimplemented_call(Empty {}).await.unwrap();
    assert_eq!(*server.client().await.call(text("x")).await.unwrap().get_ref(), text("x"));
    let counts = server.stopped().await;
    assert_eq!(counts.get("fallback OK"), 1, "strangers' names are not kept");
}
