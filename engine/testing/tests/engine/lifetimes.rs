//! Age and idle time of connections, on both sides, under paused time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quire_rpc::client::{Channel, HttpVersion, Protocol, Settings};
use quire_rpc::server::Observer;
use quire_rpc::{Limits, Peer, Server};
use rpc_testing::proto::echo_client::EchoClient;
use rpc_testing::proto::echo_server::EchoServer;
use rpc_testing::{EchoService, PlainHttp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::support::{NEVER, frame, greeting, in_memory, text};

const SECOND: Option<Duration> = Some(Duration::from_secs(1));

/// Times at which connections closed.
struct Ends(watch::Sender<Vec<Instant>>);

impl Observer for Ends {
    fn connection_closed(&self, _: Option<SocketAddr>, _: &str) {
        self.0.send_modify(|ends| ends.push(Instant::now()));
    }
}

/// A channel to a server of this process, and the times at which its connections closed.
fn connected(limits: Limits, settings: Settings) -> (Channel, watch::Receiver<Vec<Instant>>) {
    let (ends, ended) = watch::channel(Vec::new());
    let server = Server::builder().add_service(EchoServer::new(EchoService));
    (in_memory(server.limits(limits).observer(Arc::new(Ends(ends))), settings), ended)
}

/// The connections that ended in each hundredth of a second.
async fn ends_of_a_thousand(limits: Limits, settings: Settings) -> BTreeMap<u128, usize> {
    let began = Instant::now();
    let (channel, mut ended) = connected(limits, Settings { connections: 1000, ..settings });
    for _ in 0..1000 {
        channel.ready().await.unwrap();
    }
    let ends = ended.wait_for(|ends| ends.len() == 1000).await.unwrap();
    let mut counts = BTreeMap::new();
    for end in ends.iter() {
        *counts.entry(end.duration_since(began).as_millis() / 10).or_default() += 1;
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn a_thousand_connections_of_one_second_do_not_leave_together() {
    let (limits, settings) = (Limits::default(), Settings::default());
    let equal = Limits { connection_age_max: SECOND, connection_jitter: 0.0, ..limits.clone() };
    assert_eq!(ends_of_a_thousand(equal, settings.clone()).await.len(), 1, "all at once without a spread");
    for (limits, settings) in [
        (Limits { connection_age_max: SECOND, ..limits.clone() }, settings.clone()),
        (Limits { connection_idle_max: SECOND, ..limits.clone() }, settings.clone()),
        (limits.clone(), Settings { connection_age_max: SECOND, ..settings.clone() }),
        (limits.clone(), Settings { connection_idle_max: SECOND, ..settings.clone() }),
    ] {
        let spread = ends_of_a_thousand(limits, settings).await;
        // In each of the 20 slots from 0.9 to 1.1 s there are 50 on average.
        assert!(spread.keys().all(|slot| (90..=111).contains(slot)), "{spread:?}");
        assert!(spread.len() >= 20 && spread.values().all(|count| *count < 150), "{spread:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_channels_old_connection_ends_behind_its_calls_while_new_ones_begin_on_the_next() {
    let (channel, ended) = connected(Limits::default(), Settings { connection_age_max: SECOND, ..Settings::default() });
    let client = EchoClient::new(channel);
    let (sender, mut echoes) = crate::support::open(&client).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.call(text("on the next")).await.unwrap();
    assert_eq!(ended.borrow().len(), 0, "the old one has a call");
    sender.send(text("on the old")).await.unwrap();
    assert_eq!(echoes.message().await.unwrap().unwrap().payload, b"on the old");
    drop(sender);
    assert!(echoes.message().await.unwrap().is_none());
    let mut ended = ended;
    ended.wait_for(|ends| ends.len() == 2).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_on_an_old_connection_has_as_long_as_in_a_drain() {
    let limits = Limits { connection_age_max: SECOND, drain_timeout: Duration::from_secs(2), ..Limits::default() };
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let settings = Settings { http, protocol: Protocol::Connect, ..Settings::default() };
        let (channel, _ended) = connected(limits.clone(), settings);
        let began = Instant::now();
        EchoClient::new(channel).late(NEVER).await.expect_err("it is cut off");
        let after = began.elapsed().as_millis();
        assert!((2_900..3_200).contains(&after), "{http:?}: {after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_keeps_its_connection_from_being_idle() {
    let settings = Settings { connection_idle_max: SECOND, ..Settings::default() };
    let (channel, mut ended) = connected(Limits::default(), settings);
    let client = EchoClient::new(channel);
    let began = Instant::now();
    let mut late = NEVER;
    late.delay_ms = 10_000;
    client.late(late).await.unwrap();
    ended.wait_for(|ends| ends.len() == 1).await.unwrap();
    let after = began.elapsed();
    assert!(after >= Duration::from_millis(10_900), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn connections_of_http1_end_by_age_and_idle_time_on_either_side() {
    let (limits, settings) = (Limits::default(), Settings { http: HttpVersion::Http1, ..Settings::default() });
    let settings = Settings { protocol: Protocol::Connect, ..settings };
    for (limits, settings) in [
        (Limits { connection_age_max: SECOND, ..limits.clone() }, settings.clone()),
        (Limits { connection_idle_max: SECOND, ..limits.clone() }, settings.clone()),
        (limits.clone(), Settings { connection_age_max: SECOND, ..settings.clone() }),
        (limits.clone(), Settings { connection_idle_max: SECOND, ..settings.clone() }),
    ] {
        let (channel, mut ended) = connected(limits, settings);
        let client = EchoClient::new(channel);
        for served in 1..=2 {
            let began = Instant::now();
            client.call(text("x")).await.unwrap();
            ended.wait_for(|ends| ends.len() == served).await.unwrap();
            let after = began.elapsed().as_millis();
            assert!((900..1_200).contains(&after), "{after} ms");
        }
    }
}

/// The peer's end of a connection whose server drains at the signal.
fn draining_at(signal: impl Future<Output = ()> + Send + 'static) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(4096);
    let server = Server::builder().http(PlainHttp).build();
    tokio::spawn(async move { server.serve_connection(theirs, Peer::default(), signal).await });
    ours
}

const GET: &[u8] = b"GET /one HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_peer_that_connects_as_a_drain_begins_is_answered() {
    let http2 = [greeting(), frame(1, 5, 1, &[0x82, 0x86, 0x84, 0x01, 1, b'h'])].concat();
    for first in [GET, &http2] {
        for turns in [0, 9] {
            let mut peer = draining_at(std::future::ready(()));
            for _ in 0..turns {
                yield_now().await;
            }
            peer.write_all(first).await.unwrap();
            let mut answer = Vec::new();
            peer.read_to_end(&mut answer).await.unwrap();
            assert!(answer.windows(6).any(|window| window == b"hello "), "{}", answer.escape_ascii());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_drain_a_request_that_follows_an_answer_is_answered_and_a_quiet_connection_of_http1_is_closed() {
    for quiet_seconds in [0, 1] {
        let (drain, mut drains) = watch::channel(false);
        let mut peer = draining_at(async move { drop(drains.wait_for(|drains| *drains).await) });
        peer.write_all(GET).await.unwrap();
        let mut answer = Vec::new();
        while !answer.windows(5).any(|window| window == b"/one\n") {
            assert_ne!(peer.read_buf(&mut answer).await.unwrap(), 0);
        }
        assert!(!answer.windows(5).any(|window| window == b"close"));
        tokio::time::sleep(Duration::from_secs(quiet_seconds)).await;
        let began = Instant::now();
        drain.send_replace(true);
        for _ in 0..9 {
            yield_now().await;
        }
        let sent = peer.write_all(GET).await;
        let mut answer = String::new();
        peer.read_to_string(&mut answer).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
        assert_eq!(answer.contains("connection: close") && sent.is_ok(), quiet_seconds == 0, "{answer}");
    }
}
