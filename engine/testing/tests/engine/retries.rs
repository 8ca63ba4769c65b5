//! Retries and hedging by service config, under paused time: gRPC's A6 and its examples.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quire_rpc::client::{MethodConfig, RetryPolicy, ServiceConfig, Settings};
use quire_rpc::{Code, Request, Server, Status};
use rpc_testing::EchoService;
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::{self, EchoClient};
use rpc_testing::proto::echo_server::EchoServer;
use tokio::time::Instant;

use crate::support::{Counts, NEVER, in_memory, text};

const RETRY: &str = r#"{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,"initialBackoff":".1s",
    "maxBackoff":"1s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}"#;

const HEDGING: &str = r#"{"methodConfig":[{"name":[{}],"hedgingPolicy":{"maxAttempts":4,"hedgingDelay":".5s",
    "nonFatalStatusCodes":["UNAVAILABLE","INTERNAL","ABORTED"]}}]}"#;

/// Time when a call came, and its `grpc-previous-rpc-attempts`.
type Seen = (Duration, Option<String>);

/// A server that refuses its first calls, and notes its calls.
#[derive(Clone, Default)]
struct Refusing {
    refusals: Arc<Mutex<VecDeque<Status>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    counts: Arc<Counts>,
}

impl Refusing {
    fn with(refusals: impl IntoIterator<Item = Status>) -> Self {
        Self { refusals: Arc::new(Mutex::new(refusals.into_iter().collect())), ..Self::default() }
    }

    fn client(&self, service_config: impl Into<ServiceConfig>) -> EchoClient {
        let (refusals, seen, start) = (Arc::clone(&self.refusals), Arc::clone(&self.seen), Instant::now());
        let note = move |_: &str, request: &mut Request<()>| {
            let before = request.metadata().get("grpc-previous-rpc-attempts").map(str::to_owned);
            seen.lock().unwrap().push((start.elapsed(), before));
            refusals.lock().unwrap().pop_front().map_or(Ok(()), Err)
        };
        let server = Server::builder().add_service(EchoServer::new(EchoService)).interceptor(note);
        let settings = Settings { service_config: service_config.into(), ..Settings::default() };
        EchoClient::new(in_memory(server.observer(self.counts.clone()), settings))
    }

    /// Number of calls that came.
    fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Times at which calls came, in milliseconds.
    fn times_ms(&self) -> Vec<u128> {
        self.seen.lock().unwrap().iter().map(|(time, _)| time.as_millis()).collect()
    }
}

fn config(text: &str) -> ServiceConfig {
    text.parse().unwrap()
}

fn away(count: usize) -> Vec<Status> {
    vec![Status::unavailable("away"); count]
}

/// True if a time in milliseconds is 20% around the expected one, plus the timer's step.
fn is_about(time: u128, expected: u128) -> bool {
    (expected * 8 / 10..=expected * 12 / 10 + 1).contains(&time)
}

#[tokio::test(start_paused = true)]
async fn a_call_is_retried_with_growing_pauses_and_tells_the_number_before_it() {
    let server = Refusing::with(away(3));
    server.client(config(RETRY)).call(text("x")).await.unwrap();
    let seen = server.seen.lock().unwrap().clone();
    let before: Vec<_> = seen.iter().map(|(_, before)| before.as_deref()).collect();
    assert_eq!(before, [None, Some("1"), Some("2"), Some("3")]);
    let times = server.times_ms();
    let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(pauses.zip([100, 200, 400]).all(|(pause, expected)| is_about(pause, expected)), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn attempts_end_at_their_number_at_another_code_and_at_the_deadline() {
    let server = Refusing::with(away(9));
    assert_eq!(server.client(config(RETRY)).call(text("x")).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(server.calls(), 4);

    let server = Refusing::with([Status::unavailable("away"), Status::internal("broken"), Status::unavailable("")]);
    assert_eq!(server.client(config(RETRY)).call(text("x")).await.unwrap_err().code(), Code::Internal);
    assert_eq!(server.calls(), 2);

    let server = Refusing::with(away(9));
    let mut request = Request::new(text("x"));
    request.set_timeout(Duration::from_millis(200));
    let status = server.client(config(RETRY)).call(request).await.unwrap_err();
    // The second pause would end after the deadline.
    assert_eq!((status.code(), server.calls()), (Code::Unavailable, 2));
}

#[tokio::test(start_paused = true)]
async fn the_server_sets_the_pause_after_which_pauses_begin_again_or_forbids_the_retry() {
    let pushed = |pause| Status::unavailable("").with_retry_pushback(pause);
    let server = Refusing::with([away(1), vec![pushed(Some(Duration::from_secs(7)))], away(1)].concat());
    server.client(config(RETRY)).call(text("x")).await.unwrap();
    let times = server.times_ms();
    assert!(is_about(times[1] - times[0], 100), "{times:?}");
    assert!((7000..=7001).contains(&(times[2] - times[1])), "{times:?}");
    assert!(is_about(times[3] - times[2], 100), "{times:?}");

    let server = Refusing::with([pushed(None)]);
    server.client(config(RETRY)).call(text("x")).await.unwrap_err();
    assert_eq!(server.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_response_has_begun_is_not_retried() {
    let server = Refusing::default();
    let client = server.client(config(&RETRY.replace("UNAVAILABLE", "UNIMPLEMENTED")));
    let two = Request::new(Message { count: 2, ..Message::default() });
    let status = client.channel().unary::<_, Message, _>(&echo_client::MANY, two).await.unwrap_err();
    assert_eq!((status.code(), server.calls()), (Code::Unimplemented, 1));
}

#[tokio::test(start_paused = true)]
async fn failures_stop_retries_and_successes_allow_them_again() {
    let throttled = RETRY.replacen('{', r#"{"retryThrottling":{"maxTokens":10,"tokenRatio":0.5},"#, 1);
    let server = Refusing::with(away(6));
    let client = server.client(config(&throttled));
    // Four failures leave 6 tokens, the fifth 5, which is half.
    client.call(text("x")).await.unwrap_err();
    assert_eq!(server.calls(), 4);
    client.call(text("x")).await.unwrap_err();
    assert_eq!(server.calls(), 5);
    client.call(text("x")).await.unwrap_err();
    assert_eq!(server.calls(), 6);
    // Four tokens are left; four successes make them six, of which a failure takes one, and four more eight.
    for _ in 0..8 {
        client.call(text("x")).await.unwrap();
    }
    server.refusals.lock().unwrap().extend(away(1));
    client.call(text("x")).await.unwrap();
    assert_eq!(server.calls(), 6 + 8 + 2);
    // A code that no policy covers takes nothing; a forbidden retry takes one.
    server.refusals.lock().unwrap().extend(vec![Status::internal(""); 9]);
    for _ in 0..9 {
        client.call(text("x")).await.unwrap_err();
    }
    server.refusals.lock().unwrap().extend(away(1));
    client.call(text("x")).await.unwrap();
    server.refusals.lock().unwrap().extend(vec![Status::internal("").with_retry_pushback(None); 3]);
    for _ in 0..3 {
        client.call(text("x")).await.unwrap_err();
    }
    server.refusals.lock().unwrap().extend(away(1));
    client.call(text("x")).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_hedge_follows_each_delay_and_the_first_success_cancels_the_others() {
    let server = Refusing::default();
    let client = server.client(config(HEDGING));
    client.late(Message { delay_ms: 1200, ..Message::default() }).await.unwrap();
    let times = server.times_ms();
    assert!([0, 500, 1000].iter().zip(&times).all(|(due, at)| (*due..=due + 3).contains(at)), "{times:?}");
    assert_eq!(times.len(), 3);
    server.counts.until(|counts| counts.get("/testing.Echo/Late CANCELLED") == 2).await;

    let server = Refusing::default();
    let client = server.client(config(&HEDGING.replace(".5s", "0s")));
    client.late(Message { delay_ms: 1200, ..Message::default() }).await.unwrap();
    assert!(server.times_ms().iter().all(|at| *at <= 3) && server.calls() == 4);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_comes_at_once_after_a_code_that_is_not_fatal_and_none_after_one_that_is() {
    let server = Refusing::with([Status::unavailable(""), Status::aborted("")]);
    server.client(config(HEDGING)).late(Message { delay_ms: 100, ..Message::default() }).await.unwrap();
    assert!(server.calls() == 3 && server.times_ms()[2] <= 3, "{:?}", server.times_ms());

    let server = Refusing::with([Status::unavailable(""), Status::not_found("")]);
    let status = server.client(config(HEDGING)).call(text("x")).await.unwrap_err();
    assert_eq!((status.code(), server.calls()), (Code::NotFound, 2));

    // All fail: the last failure is the call's.
    let server = Refusing::with([away(3), vec![Status::internal("the last")]].concat());
    let status = server.client(config(HEDGING)).call(text("x")).await.unwrap_err();
    assert_eq!((status.code(), server.calls()), (Code::Internal, 4));
}

#[tokio::test(start_paused = true)]
async fn pushback_and_throttle_hold_hedges_back() {
    let pushed = |pause| Status::unavailable("").with_retry_pushback(pause);
    let server = Refusing::with([pushed(Some(Duration::from_secs(3)))]);
    server.client(config(HEDGING)).late(Message { delay_ms: 100, ..Message::default() }).await.unwrap();
    let times = server.times_ms();
    assert!(times.len() == 2 && (3000..=3003).contains(&times[1]), "{times:?}");

    let server = Refusing::with([pushed(None)]);
    server.client(config(HEDGING)).call(text("x")).await.unwrap_err();
    assert_eq!(server.calls(), 1);

    let few = HEDGING.replacen('{', r#"{"retryThrottling":{"maxTokens":3,"tokenRatio":1},"#, 1);
    let server = Refusing::with(away(9));
    server.client(config(&few)).call(text("x")).await.unwrap_err();
    // Two failures leave one token of three.
    assert_eq!(server.calls(), 2);
    let mut late = Request::new(NEVER);
    late.set_timeout(Duration::from_secs(10));
    let client = server.client(config(HEDGING));
    server.refusals.lock().unwrap().clear();
    assert_eq!(client.late(late).await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(server.calls(), 2 + 4);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_never_comes_ends_its_call() {
    let pushed = |pause| Status::unavailable("pushed").with_retry_pushback(Some(pause));
    let server = Refusing::with([pushed(Duration::from_millis(i32::MAX as u64))]);
    let mut request = Request::new(text("x"));
    request.set_timeout(Duration::from_secs(1));
    let start = Instant::now();
    let ended = server.client(config(HEDGING)).call(request).await.unwrap_err();
    assert_eq!((ended.code(), ended.message(), start.elapsed()), (Code::Unavailable, "pushed", Duration::ZERO));

    // Another call uses the tokens up while this one waits for its second attempt.
    let few = HEDGING.replacen('{', r#"{"retryThrottling":{"maxTokens":3,"tokenRatio":1},"#, 1);
    let server = Refusing::with([pushed(Duration::from_secs(3))].into_iter().chain(away(9)));
    let client = server.client(config(&few));
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.call(text("y")).await
    };
    let (first, other) = tokio::join!(client.call(text("x")), later);
    assert_eq!((first.unwrap_err().message(), other.unwrap_err().code()), ("pushed", Code::Unavailable));
    assert_eq!(server.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_methods_timeout_ends_calls_unless_their_own_is_shorter() {
    let timeout = |name: &str, seconds| {
        let config = MethodConfig { timeout: Some(Duration::from_secs(seconds)), ..MethodConfig::default() };
        ServiceConfig::default().with_method(name, config)
    };
    for (config, own, expected) in [
        (timeout("testing.Echo/Late", 2), None, 2),
        (timeout("testing.Echo", 2), Some(5), 2),
        (timeout("", 2), Some(1), 1),
        (timeout("testing.Echo/Call", 2), Some(5), 5),
    ] {
        let client = Refusing::default().client(config);
        let mut request = Request::new(NEVER);
        if let Some(own) = own {
            request.set_timeout(Duration::from_secs(own));
        }
        let start = Instant::now();
        assert_eq!(client.late(request).await.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(start.elapsed().as_secs(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_may_wait_for_a_connection_unless_the_call_does_not() {
    let config =
        config(r#"{"methodConfig":[{"name":[{"service":"testing.Echo"}],"waitForReady":true,"timeout":"5s"}]}"#);
    let settings = Settings { service_config: config, ..Settings::default() };
    let refused = async || Err::<tokio::io::DuplexStream, _>(std::io::Error::other("no server"));
    let builder = quire_rpc::client::Channel::builder("http://nowhere").unwrap().connector(refused);
    let client = EchoClient::new(builder.settings(settings).connect_lazy().unwrap());
    assert_eq!(client.call(text("x")).await.unwrap_err().code(), Code::DeadlineExceeded);
    let mut hasty = Request::new(text("x"));
    hasty.set_wait_for_ready(false);
    assert_eq!(client.call(hasty).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_policy_for_marked_calls_retries_no_others() {
    let policy = || RetryPolicy { codes: vec![Code::Aborted], ..RetryPolicy::default() };
    for (is_safe, calls) in [(false, 1), (true, 3)] {
        let server = Refusing::with(vec![Status::aborted(""); 9]);
        let mut request = Request::new(text("x"));
        request.set_safe_to_retry(is_safe);
        server.client(policy()).call(request).await.unwrap_err();
        assert_eq!(server.calls(), calls);
    }
}
