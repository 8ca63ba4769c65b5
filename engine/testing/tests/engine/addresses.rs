//! Addresses of a channel: several servers in turn, skipping unreachable ones, and Unix sockets.

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support::{Counts, Running, frame, in_memory, open, text};
use crate::transparent::{head, next_frame, refusal, rest};
use bytes::Bytes;
use quire_rpc::client::{Address, Builder, Channel, HttpRequest, HttpVersion, Protocol, Resolver, Settings};
use quire_rpc::health::HealthReporter;
use quire_rpc::{Code, Limits, Peer, Request, Server, Status};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::{self, EchoClient};
use rpc_testing::proto::echo_server::EchoServer;
use rpc_testing::{EchoService, PlainHttp};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixListener};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

fn round_robin() -> Settings {
    let service_config = r#"{"loadBalancingConfig":[{"round_robin":{}}]}"#.parse().unwrap();
    // The shortest pauses, so that a test soon sees a server that is back.
    let reconnect = Duration::from_millis(1);
    Settings { service_config, reconnect_first: reconnect, reconnect_max: reconnect, ..Settings::default() }
}

/// Pauses of half to all of this time between attempts to connect.
fn reconnecting_after(seconds: u64, settings: Settings) -> Settings {
    let reconnect = Duration::from_secs(seconds);
    Settings { reconnect_first: reconnect, reconnect_max: reconnect, ..settings }
}

fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

fn loopback() -> TcpSocket {
    bound("127.0.0.1:0".parse().unwrap())
}

/// A port that no one else gets while no server listens there.
struct Port(TcpSocket);

impl Port {
    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    fn serve(&self) -> Running {
        Running::on(bound(self.address()).listen(64).unwrap(), Limits::default(), |builder| builder)
    }
}

fn patient(payload: &str) -> Request<Message> {
    let mut request = Request::new(text(payload));
    request.set_wait_for_ready(true);
    request
}

/// Makes calls, none of which fails, until the server's counters satisfy `holds`.
async fn calls_until(client: &EchoClient, server: &Running, holds: impl Fn(&Counts) -> bool) {
    let calls = async {
        loop {
            client.call(text("to a server that is there")).await.unwrap();
        }
    };
    tokio::select! {
        () = calls => {}
        () = server.counts.until(holds) => {}
    }
}

async fn client(resolver: impl Resolver, settings: Settings) -> EchoClient {
    let builder = Channel::builder("http://shop.example").unwrap().resolver(resolver).settings(settings);
    EchoClient::new(builder.connect().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn calls_are_shared_out_among_several_servers_also_those_in_the_turn_of_a_dead_one() {
    let sockets = ["shared-1", "shared-2", "shared-0"].map(Socket::new);
    let servers = [sockets[0].serve(), sockets[1].serve()];
    let addresses = sockets.each_ref().map(Socket::address);
    let client = lazy(shop(addresses.to_vec(), Settings { connections: 2, ..round_robin() }));
    client.channel().ready().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    for _ in 0..48 {
        client.call(text("to one of them")).await.unwrap();
    }
    for counts in servers {
        assert_eq!((counts.get("opened"), counts.get("/testing.Echo/Call OK")), (2, 24));
    }
}

#[tokio::test]
async fn an_address_without_a_server_is_passed_over_on_either_http() {
    let server = Running::new(Limits::default()).await;
    let dead = Port(loopback());
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        for settings in [Settings::default(), round_robin()] {
            let settings = Settings { protocol: Protocol::Connect, http, connections: 2, ..settings };
            let client = client(vec![dead.address(), server.address], settings).await;
            for _ in 0..4 {
                client.call(text("found")).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn pick_first_takes_the_first_server_that_is_there() {
    let ports = [Port(loopback()), Port(loopback())];
    let [first, second] = ports.each_ref().map(Port::serve);
    let client = client(vec![first.address, second.address], Settings::default()).await;
    client.call(text("to the first")).await.unwrap();
    assert_eq!(first.stopped().await.get("/testing.Echo/Call OK"), 1);
    client.call(patient("to the second")).await.unwrap();
    let first = ports[0].serve();
    client.call(text("to the second still")).await.unwrap();
    assert_eq!(second.stopped().await.get("/testing.Echo/Call OK"), 2);
    client.call(patient("to the first again")).await.unwrap();
    assert_eq!(first.stopped().await.get("/testing.Echo/Call OK"), 1);
}

#[tokio::test]
async fn round_robin_fails_no_call_while_a_server_is_there_and_uses_those_that_come_back() {
    let ports = [Port(loopback()), Port(loopback())];
    let [first, second] = ports.each_ref().map(Port::serve);
    let client = client(vec![first.address, second.address], round_robin()).await;
    calls_until(&client, &second, |counts| counts.get("/testing.Echo/Call OK") > 2).await;
    let before = first.counts.get("/testing.Echo/Call OK");
    second.stopped().await;
    calls_until(&client, &first, |counts| counts.get("/testing.Echo/Call OK") > before + 5).await;
    let second = ports[1].serve();
    calls_until(&client, &second, |counts| counts.get("/testing.Echo/Call OK") > 2).await;
    let (_, _) = (first.stopped().await, second.stopped().await);
    client.call(text("no one is there")).await.unwrap_err();
    // Whichever of the two it waits for.
    let waiting = [client.clone(), client.clone()]
        .map(|client| tokio::spawn(async move { client.call(patient("until the second is back")).await }));
    let second = ports[1].serve();
    for call in waiting {
        call.await.unwrap().unwrap();
    }
    assert_eq!(second.stopped().await.get("/testing.Echo/Call OK"), 2);
}

#[tokio::test]
async fn round_robin_uses_servers_that_report_that_they_serve_or_report_nothing() {
    let service_config = r#"{"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":"shop"}}"#;
    let settings = Settings { service_config: service_config.parse().unwrap(), ..round_robin() };
    let reporting = async |serves| {
        let (health, service) = HealthReporter::new();
        health.set_serving("shop", serves);
        (health, Running::with(Limits::default(), |builder| builder.add_service(service)).await)
    };
    let ((first_health, first), (second_health, second)) = (reporting(true).await, reporting(false).await);
    let client_of = |addresses: Vec<SocketAddr>| client(addresses, settings.clone());
    let client = client_of(vec![second.address, first.address]).await;
    for _ in 0..4 {
        client.call(text("to the first")).await.unwrap();
    }
    assert_eq!(first.counts.get("/testing.Echo/Call OK"), 4);
    second_health.set_serving("shop", true);
    calls_until(&client, &second, |counts| counts.get("/testing.Echo/Call OK") > 2).await;
    first_health.set_serving("shop", false);
    let mut at_the_first = 0;
    while std::mem::replace(&mut at_the_first, first.counts.get("/testing.Echo/Call OK")) != at_the_first {
        for _ in 0..4 {
            client.call(text("to the second at last")).await.unwrap();
        }
    }
    second_health.set_serving("shop", false);
    let status = loop {
        if let Err(status) = client.call(text("to neither at last")).await {
            break status;
        }
    };
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "the server reports that it does not serve"));
    let waiting = [client.clone(), client.clone()]
        .map(|client| tokio::spawn(async move { client.call(patient("until one serves")).await }));
    first_health.set_serving("shop", true);
    second_health.set_serving("shop", true);
    for call in waiting {
        call.await.unwrap().unwrap();
    }
    // The watches hold no connection back.
    client.channel().close().await;
    let silent = Running::new(Limits::default()).await;
    client_of(vec![silent.address]).await.call(text("reports nothing")).await.unwrap();
}

/// Resolves to the addresses set last.
struct Moving(Arc<Mutex<Vec<SocketAddr>>>);

impl Resolver for Moving {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        Ok(self.0.lock().unwrap().iter().copied().map(Address::Tcp).collect())
    }
}

#[tokio::test]
async fn round_robin_follows_the_resolver_after_a_connection_has_ended() {
    let (first, mut second) = (Running::new(Limits::default()).await, Running::new(Limits::default()).await);
    let third = Running::new(Limits::default()).await;
    let addresses = Arc::new(Mutex::new(vec![first.address, second.address]));
    let client = client(Moving(Arc::clone(&addresses)), round_robin()).await;
    calls_until(&client, &second, |counts| counts.get("/testing.Echo/Call OK") > 2).await;
    let streams = [open(&client).await, open(&client).await];
    *addresses.lock().unwrap() = vec![third.address];
    // One connection ends, and the channel resolves for the next.
    second.stop();
    calls_until(&client, &third, |counts| counts.get("/testing.Echo/Call OK") > 2).await;
    let before = first.counts.get("/testing.Echo/Call OK");
    for _ in 0..5 {
        client.call(text("to the third")).await.unwrap();
    }
    assert_eq!(first.counts.get("/testing.Echo/Call OK"), before);
    for (sender, mut echoes) in streams {
        sender.send(text("to the end")).await.unwrap();
        assert_eq!(echoes.message().await.unwrap().unwrap().payload, b"to the end");
        drop(sender);
        assert!(echoes.message().await.unwrap().is_none());
    }
    for server in [first, second] {
        server.counts.until(|counts| counts.get("closed") == 1).await;
    }
}

/// A Unix socket's address, whose connections take no time: a paused clock stands still for them.
struct Socket(PathBuf);

impl Socket {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("quire-rpc-{}-{name}.sock", std::process::id())))
    }

    fn address(&self) -> Address {
        Address::Unix(self.0.clone())
    }

    /// Accepts connections into the system's queue.
    fn listen(&self) -> UnixListener {
        UnixListener::bind(&self.0).unwrap()
    }

    fn serve(&self) -> Arc<Counts> {
        serve(self.listen(), pending())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn echo() -> quire_rpc::server::Builder {
    Server::builder().add_service(EchoServer::new(EchoService)).http(PlainHttp)
}

fn serve(listener: UnixListener, stop: impl Future<Output = ()> + Send + 'static) -> Arc<Counts> {
    let counts = Arc::new(Counts::default());
    tokio::spawn(echo().observer(Arc::<Counts>::clone(&counts)).serve_incoming(listener, stop));
    counts
}

fn shop(resolver: impl Resolver, settings: Settings) -> Builder {
    Channel::builder("http://shop.example").unwrap().resolver(resolver).settings(settings)
}

fn lazy(builder: Builder) -> EchoClient {
    EchoClient::new(builder.connect_lazy().unwrap())
}

/// An address that answers no attempt to connect.
async fn black_hole() -> (Address, impl Drop) {
    let listener = loopback().listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let queued = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
    (address.into(), Box::new((listener, queued)))
}

#[tokio::test(start_paused = true)]
async fn pick_first_reaches_the_server_behind_a_silent_address() {
    let (mute, server) = (Socket::new("mute"), Socket::new("behind"));
    let (_listener, _counts) = (mute.listen(), server.serve());
    let (black_hole, _kept) = black_hole().await;
    for (silent, delay_ms) in [
        (vec![black_hole.clone()], 250),
        (vec![mute.address()], 10_000),
        // The first is tried again when the second has kept silent.
        (vec![black_hole, mute.address()], 10_500),
    ] {
        let start = Instant::now();
        let client = lazy(shop([silent, vec![server.address()]].concat(), Settings::default()));
        client.call(text("behind it")).await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_millis(delay_ms));
    }
}

struct Slow(Address);

impl Resolver for Slow {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        sleep(Duration::from_secs(6)).await;
        Ok(vec![self.0.clone()])
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_resolver_leaves_the_time_to_connect_whole() {
    let (address, _kept) = black_hole().await;
    let start = Instant::now();
    let error = lazy(shop(Slow(address), Settings::default())).channel().ready().await.unwrap_err();
    assert_eq!(error.to_string(), "cannot reach shop.example: no connection in time");
    assert_eq!(start.elapsed(), Duration::from_secs(16));
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_whichever_server_is_ready_first() {
    let (mute, late) = (Socket::new("first-mute"), Socket::new("late"));
    let (_mute, listener) = (mute.listen(), late.listen());
    let start = Instant::now();
    let client = lazy(shop(vec![mute.address(), late.address()], round_robin()));
    let calls = [(); 3].map(|()| {
        let client = client.clone();
        tokio::spawn(async move { client.call(text("to the late one")).await })
    });
    sleep(Duration::from_secs(1)).await;
    serve(listener, pending());
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn round_robin_is_ready_with_one_server_and_fails_with_all() {
    let [mute, dead, server] = ["one-mute", "dead", "ready"].map(Socket::new);
    let (_mute, _counts) = (mute.listen(), server.serve());
    let start = Instant::now();
    for other in [&dead, &mute] {
        let channel = shop(vec![other.address(), server.address()], round_robin()).connect().await.unwrap();
        channel.ready().await.unwrap();
        assert!(channel.is_ready());
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let client = lazy(shop(vec![dead.address(), mute.address()], reconnecting_after(60, round_robin())));
    assert_eq!(client.call(text("no one is there")).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    client.channel().ready().await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}

/// Resolves to the addresses set last; records the time of each resolution.
#[derive(Clone, Default)]
struct Registry(Arc<Mutex<(Vec<Address>, Vec<Instant>)>>);

impl Resolver for Registry {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        let mut state = self.0.lock().unwrap();
        state.1.push(Instant::now());
        Ok(state.0.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_gone_gets_no_calls_and_the_resolver_its_rest() {
    let [old, dead, new] = ["old", "gone", "new"].map(Socket::new);
    let (stop, stopped) = oneshot::channel::<()>();
    serve(old.listen(), async { drop(stopped.await) });
    let registry = Registry::default();
    let set = |addresses: Vec<Address>| registry.0.lock().unwrap().0 = addresses;
    set(vec![old.address()]);
    let settings = Settings { service_config: round_robin().service_config, servers_max: 2, ..Settings::default() };
    let client = lazy(shop(registry.clone(), settings));
    client.call(text("to the old one")).await.unwrap();
    let traffic = client.channel().traffic();
    set(vec![dead.address()]);
    stop.send(()).unwrap();
    sleep(Duration::from_mins(1)).await;
    let start = Instant::now();
    assert_eq!(client.call(text("no one is there")).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(client.channel().traffic().sent_bytes >= traffic.sent_bytes, "that of the old one is counted still");
    let asked = registry.0.lock().unwrap().1.len();
    assert!((5..60).contains(&asked), "asked {asked} times in a minute");
    // A new server is tried at once, not after the pause of the dead one, which keeps its place: the third is one too
    // many.
    let (counts, one_too_many) = (new.serve(), Socket::new("many"));
    let unused = one_too_many.serve();
    set(vec![new.address(), one_too_many.address(), dead.address()]);
    client.call(patient("to the new one")).await.unwrap();
    let asked = registry.0.lock().unwrap().1[asked..].iter().find(|at| **at > start).copied();
    assert_eq!(asked.unwrap().elapsed(), Duration::ZERO);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((counts.get("opened"), unused.get("opened")), (1, 0));
}

/// Resolves to the first servers, and then by turns to the others; counts resolutions.
struct Fickle(Arc<AtomicUsize>, [Vec<Address>; 3]);

impl Resolver for Fickle {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        Ok(self.1[if asked == 0 { 0 } else { 1 + asked % 2 }].clone())
    }
}

#[tokio::test(start_paused = true)]
async fn the_resolver_is_not_asked_about_a_server_that_it_no_longer_has() {
    let [ending, left, new] = ["ending", "left", "next"].map(Socket::new);
    let (stop, stopped) = oneshot::channel::<()>();
    serve(ending.listen(), async { drop(stopped.await) });
    let _counts = [left.serve(), new.serve()];
    let asked = Arc::new(AtomicUsize::new(0));
    let found = [vec![ending.address(), left.address()], vec![left.address()], vec![new.address()]];
    let client = lazy(shop(Fickle(Arc::clone(&asked), found), round_robin()));
    client.call(text("to either")).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    stop.send(()).unwrap();
    sleep(Duration::from_secs(1)).await;
    let before = asked.load(Ordering::Relaxed);
    sleep(Duration::from_mins(1)).await;
    assert!((2..=3).contains(&before), "asked {before} times about the server that ended");
    assert_eq!(asked.load(Ordering::Relaxed), before);
}

#[tokio::test(start_paused = true)]
async fn calls_move_from_a_connection_that_ends_before_they_are_sent() {
    let (server, serving) = (echo().build(), Arc::new(Mutex::new(Vec::new())));
    let record = Arc::clone(&serving);
    let connector = move || {
        let (ours, theirs) = tokio::io::duplex(4096);
        let server = server.clone();
        let task = tokio::spawn(async move { server.serve_connection(theirs, Peer::default(), pending()).await });
        record.lock().unwrap().push(task.abort_handle());
        ready(Ok(ours))
    };
    let builder = Channel::builder("http://pipe").unwrap().connector(connector);
    let channel = builder.settings(Settings { connections: 2, ..round_robin() }).connect_lazy().unwrap();
    let layered = EchoClient::new(channel.layered(tower::layer::util::Identity::new()));
    let get = http::Request::get("http://pipe/plain").body(Bytes::new()).unwrap();
    let get = HttpRequest::new(get);
    let kinds: [&dyn Fn() -> Pin<Box<dyn Future<Output = bool>>>; 4] = [
        &|| {
            let (channel, request) = (channel.clone(), Request::new(channel.wire_message(&[])));
            Box::pin(async move { channel.unary_raw(&echo_client::CALL, request).await.reply.is_ok() })
        },
        &|| {
            let (channel, get) = (channel.clone(), get.clone());
            Box::pin(async move { channel.http(&get).await.status == Ok(200) })
        },
        &|| {
            let layered = layered.clone();
            Box::pin(async move { layered.call(text("layered")).await.is_ok() })
        },
        &|| {
            let client = EchoClient::new(channel.clone());
            Box::pin(async move { client.each(quire_rpc::unfold((), async |()| None)).await.is_ok() })
        },
    ];
    channel.ready().await.unwrap();
    for call in kinds {
        sleep(Duration::from_secs(1)).await;
        serving.lock().unwrap().remove(0).abort();
        assert_eq!(tokio::join!(call(), call(), call(), call()), (true, true, true, true));
    }
}

/// Round robin that watches the health of the service `shop`.
fn checked() -> Settings {
    let service_config = r#"{"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":"shop"}}"#;
    Settings { service_config: service_config.parse().unwrap(), ..round_robin() }
}

fn healthy(serves: bool) -> (HealthReporter, quire_rpc::server::Builder) {
    let (health, service) = HealthReporter::new();
    health.set_serving("shop", serves);
    (health, echo().add_service(service))
}

/// Reports a server's health on the stream of its watch.
fn report(stream: u32, health: u8) -> Vec<u8> {
    [head(stream), frame(0, 0, stream, &[0, 0, 0, 0, 2, 8, health])].concat()
}

/// A channel over pipes, from the first, that are served by `serve`.
fn piped<F: Future<Output = ()> + Send + 'static>(
    settings: Settings,
    serve: impl Fn(usize, DuplexStream) -> F + Send + Sync + 'static,
) -> EchoClient {
    let connections = Mutex::new(0..);
    let connector = move || {
        let (ours, theirs) = tokio::io::duplex(4096);
        let serving = serve(connections.lock().unwrap().next().unwrap(), theirs);
        tokio::spawn(serving);
        ready(Ok(ours))
    };
    lazy(Channel::builder("http://pipe").unwrap().connector(connector).settings(settings))
}

/// Reads the client's preface and sends SETTINGS.
async fn greet(pipe: &mut DuplexStream) {
    pipe.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    pipe.read_exact(&mut [0; 24]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn calls_wait_until_the_health_is_known_and_a_watch_that_ends_begins_again() {
    let start = Instant::now();
    let (note, mut notes) = mpsc::unbounded_channel();
    let client = piped(checked(), move |_, mut pipe| {
        let note = note.clone();
        async move {
            greet(&mut pipe).await;
            while let Some((kind, stream)) = next_frame(&mut pipe).await {
                let answer = match (kind, stream) {
                    (1, _) => {
                        note.send((stream, start.elapsed().as_secs())).unwrap();
                        continue;
                    }
                    (0, 1) => {
                        sleep(Duration::from_secs(5)).await;
                        refusal(1)
                    }
                    (0, 3) => {
                        sleep(Duration::from_secs(5)).await;
                        report(3, 1)
                    }
                    (0, _) => [head(stream), rest(stream)].concat(),
                    _ => continue,
                };
                pipe.write_all(&answer).await.unwrap();
            }
        }
    });
    client.call(patient("once it serves")).await.unwrap();
    let mut seen = Vec::new();
    while let Ok(note) = notes.try_recv() {
        seen.push(note);
    }
    assert_eq!(seen, [(1, 0), (3, 5), (5, 10)]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_each_connection_at_once_is_given_time_and_fails_calls() {
    let goaway = || frame(7, 0, 0, &[0; 8]);
    let cases = [
        (round_robin(), vec![], "cannot reach pipe: closed by the server"),
        (round_robin(), goaway(), "cannot reach pipe: the server takes no more calls"),
        (checked(), vec![], "the server"),
        (checked(), goaway(), "the server"),
        (checked(), report(1, 2), "the server"),
    ];
    for (settings, last_words, cause) in cases {
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let client = piped(reconnecting_after(10, settings), move |_, mut pipe| {
            let (last_words, count) = (last_words.clone(), count.fetch_add(1, Ordering::Relaxed));
            async move {
                // Far too many already; it would not end.
                if count > 100 {
                    return pending().await;
                }
                greet(&mut pipe).await;
                let is_report = last_words.get(3) == Some(&1);
                while is_report && next_frame(&mut pipe).await.is_some_and(|(kind, _)| kind != 1) {}
                pipe.write_all(&last_words).await.unwrap();
                if last_words.get(3) != Some(&7) {
                    pipe.shutdown().await.unwrap();
                }
                while next_frame(&mut pipe).await.is_some() {}
            }
        });
        let start = Instant::now();
        let status = client.call(text("to no one")).await.unwrap_err();
        assert_eq!((status.code(), start.elapsed()), (Code::Unavailable, Duration::ZERO));
        assert!(status.message().contains(cause), "{cause}: {status}");
        sleep(Duration::from_mins(1)).await;
        let opened = opened.load(Ordering::Relaxed);
        assert!((6..=13).contains(&opened), "{cause}: opened {opened} connections in a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_to_a_server_begin_some_time_apart() {
    let (start, opened) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let note = Arc::clone(&opened);
    let client = piped(reconnecting_after(10, round_robin()), move |_, mut pipe| {
        note.lock().unwrap().push(start.elapsed().as_secs());
        async move {
            greet(&mut pipe).await;
            // One call for each connection.
            while let Some((kind, stream)) = next_frame(&mut pipe).await {
                if kind == 0 {
                    return pipe.write_all(&[head(stream), rest(stream)].concat()).await.unwrap();
                }
            }
        }
    });
    for _ in 0..2 {
        client.call(text("on its own connection")).await.unwrap();
    }
    sleep(Duration::from_secs(25)).await;
    client.call(text("later")).await.unwrap();
    client.call(text("on a connection without a pause")).await.unwrap();
    assert_eq!(*opened.lock().unwrap(), [0, 10, 20, 35]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_because_it_was_idle_is_no_failure() {
    let limits = Settings { connection_idle_max: Some(Duration::from_secs(5)), ..round_robin() };
    let client = EchoClient::new(in_memory(echo(), reconnecting_after(60, limits)));
    let start = Instant::now();
    client.channel().ready().await.unwrap();
    sleep(Duration::from_secs(30)).await;
    client.call(text("on the next connection")).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_report_fails_in_time_and_is_cancelled() {
    let start = Instant::now();
    let (note, mut notes) = mpsc::unbounded_channel();
    let client = piped(checked(), move |_, mut pipe| {
        let note = note.clone();
        async move {
            greet(&mut pipe).await;
            while let Some((kind, stream)) = next_frame(&mut pipe).await {
                if let 1 | 3 = kind {
                    note.send((kind, stream)).unwrap();
                }
            }
        }
    });
    let status = client.call(text("to no one")).await.unwrap_err();
    let cause = "the watch of the server's health ended: DEADLINE_EXCEEDED: no report in time";
    assert_eq!((status.code(), status.message()), (Code::Unavailable, cause));
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    sleep(Duration::from_secs(1)).await;
    for expected in [(1, 1), (3, 1), (1, 3)] {
        assert_eq!(notes.recv().await, Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_long_reported_begins_again_at_once() {
    let client = piped(reconnecting_after(60, checked()), |_, mut pipe| async move {
        greet(&mut pipe).await;
        while let Some((kind, stream)) = next_frame(&mut pipe).await {
            let answer = match (kind, stream) {
                (0, 1 | 3) => {
                    pipe.write_all(&report(stream, if stream == 1 { 1 } else { 2 })).await.unwrap();
                    sleep(Duration::from_mins(1)).await;
                    refusal(stream)
                }
                (0, 5) => report(5, 1),
                (0, _) => [head(stream), rest(stream)].concat(),
                _ => continue,
            };
            pipe.write_all(&answer).await.unwrap();
        }
    });
    let start = Instant::now();
    client.channel().ready().await.unwrap();
    sleep(Duration::from_secs(70)).await;
    client.call(patient("once it serves again")).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 120);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_after_its_first_report_is_given_time_and_fails_calls() {
    // Without pauses, a hundred are answered: it would not end.
    for (seconds, expected) in [(10, 6..=13), (0, 101..=110)] {
        let watches = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&watches);
        let client = piped(reconnecting_after(seconds, checked()), move |_, mut pipe| {
            let count = Arc::clone(&count);
            async move {
                greet(&mut pipe).await;
                while let Some((kind, stream)) = next_frame(&mut pipe).await {
                    if kind == 0 && count.fetch_add(1, Ordering::Relaxed) < 100 {
                        pipe.write_all(&[report(stream, 1), refusal(stream)].concat()).await.unwrap();
                    }
                }
            }
        });
        let start = Instant::now();
        let status = client.call(text("to no one")).await.unwrap_err();
        assert_eq!((status.code(), start.elapsed()), (Code::Unavailable, Duration::ZERO));
        assert!(status.message().starts_with("the watch of the server's health ended"), "{status}");
        sleep(Duration::from_mins(1)).await;
        let watches = watches.load(Ordering::Relaxed);
        assert!(expected.contains(&watches), "{watches} watches in a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_begin_anew_after_a_server_that_served_long_and_announced_its_end() {
    let (start, opened) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let note = Arc::clone(&opened);
    let settings = Settings { reconnect_first: Duration::from_secs(1), ..reconnecting_after(60, checked()) };
    let client = piped(settings, move |_, mut pipe| {
        note.lock().unwrap().push(start.elapsed().as_secs());
        async move {
            greet(&mut pipe).await;
            while next_frame(&mut pipe).await.is_some_and(|(kind, _)| kind != 0) {}
            pipe.write_all(&report(1, 1)).await.unwrap();
            sleep(Duration::from_secs(59)).await;
            pipe.write_all(&frame(0, 0, 1, &[0, 0, 0, 0, 2, 8, 2])).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            pipe.write_all(&frame(7, 0, 0, &[0; 8])).await.unwrap();
        }
    });
    client.channel().ready().await.unwrap();
    sleep(Duration::from_secs(310)).await;
    let opened = opened.lock().unwrap();
    assert!(opened.len() == 6 && opened[5] <= 305, "{opened:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_the_server_ends_before_it_was_idle_for_long_is_replaced_at_once() {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let limits = Settings { connection_idle_max: Some(Duration::from_mins(1)), ..checked() };
    let client = piped(limits, move |number, mut pipe| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            greet(&mut pipe).await;
            while next_frame(&mut pipe).await.is_some_and(|(kind, _)| kind != 0) {}
            pipe.write_all(&report(1, 1)).await.unwrap();
            if number == 0 {
                sleep(Duration::from_secs(10)).await;
                pipe.write_all(&frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).await.unwrap();
            }
            while next_frame(&mut pipe).await.is_some() {}
        }
    });
    client.channel().ready().await.unwrap();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(opened.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_between_two_watches_is_not_pinged() {
    let (note, mut notes) = mpsc::unbounded_channel();
    let settings = Settings { keepalive_interval: Some(Duration::from_secs(1)), ..checked() };
    let client = piped(reconnecting_after(60, settings), move |_, mut pipe| {
        let note = note.clone();
        async move {
            greet(&mut pipe).await;
            while let Some((kind, stream)) = next_frame(&mut pipe).await {
                note.send(kind).unwrap();
                if (kind, stream) == (0, 1) {
                    pipe.write_all(&refusal(1)).await.unwrap();
                }
            }
        }
    });
    client.call(text("before the second watch")).await.unwrap_err();
    sleep(Duration::from_secs(25)).await;
    while let Ok(kind) = notes.try_recv() {
        assert_ne!(kind, 6, "a ping");
    }
}

/// A server that has answered each write, with the next of these, by the next read.
struct Prompt(VecDeque<Vec<u8>>, bool);

impl AsyncRead for Prompt {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !std::mem::take(&mut self.1) {
            return Poll::Pending;
        }
        let Some(answer) = self.0.pop_front() else { return Poll::Pending };
        out.put_slice(&answer);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prompt {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.1 = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_that_comes_at_once_is_seen_at_once() {
    let connector = || ready(Ok(Prompt([frame(4, 0, 0, &[]), report(1, 1)].into(), false)));
    let client = lazy(Channel::builder("http://prompt").unwrap().connector(connector).settings(checked()));
    let readiness = tokio::time::timeout(Duration::from_secs(1), client.channel().ready());
    readiness.await.expect("in time").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_waits_no_more() {
    let (health, server) = healthy(false);
    let limits = |settings| Settings { waiting_calls_max: 2, ..settings };
    let unhealthy = EchoClient::new(in_memory(server, limits(checked())));
    let builder = Channel::builder("http://nowhere").unwrap().connector(pending::<io::Result<DuplexStream>>);
    let unreached = lazy(builder.settings(limits(Settings::default())));
    for client in [&unhealthy, &unreached] {
        let call = async || {
            let mut request = patient("too long");
            request.set_timeout(Duration::from_secs(1));
            client.call(request).await.unwrap_err().code()
        };
        for _ in 0..3 {
            let codes = tokio::join!(call(), call(), call());
            assert_eq!(codes, (Code::DeadlineExceeded, Code::DeadlineExceeded, Code::ResourceExhausted));
        }
    }
    health.set_serving("shop", true);
    unhealthy.call(patient("served")).await.unwrap();
}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) {
    assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// A request's state that does something when the channel drops it.
struct Last<F: FnMut()>(F);

impl<F: FnMut()> Drop for Last<F> {
    fn drop(&mut self) {
        self.0();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_accepted_and_made_also_while_the_channel_takes_its_queue_and_closes() {
    let client = EchoClient::new(in_memory(echo(), Settings::default()));
    client.channel().ready().await.unwrap();
    let (of_last, keep) = (client.clone(), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&keep);
    let last = Last(move || {
        let client = of_last.clone();
        let mut call = Box::pin(async move { client.call(text("before it closes")).await });
        poll_once(call.as_mut());
        *keep.lock().unwrap() = Some(call);
        poll_once(std::pin::pin!(of_last.channel().close()));
    });
    {
        let mut stream = std::pin::pin!(client.each(quire_rpc::unfold(last, async |_| None)));
        poll_once(stream.as_mut());
    }
    sleep(Duration::from_secs(1)).await;
    let call = kept.lock().unwrap().take().expect("the dropped stream makes a call");
    tokio::time::timeout(Duration::from_secs(1), call).await.expect("an answer").unwrap();
}

#[tokio::test]
async fn health_checks_need_http2() {
    let settings = Settings { http: HttpVersion::Http1, protocol: Protocol::Connect, ..checked() };
    let error = Channel::builder("http://shop").unwrap().settings(settings).connect_lazy().unwrap_err();
    assert_eq!(error.to_string(), "health checks need HTTP/2; over HTTP/1.1, leave out healthCheckConfig");
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_no_call_for_the_limit_and_for_idle_time() {
    let (counts, (_health, server)) = (Arc::new(Counts::default()), healthy(true));
    let limits =
        Settings { calls_per_connection_max: 1, connection_idle_max: Some(Duration::from_secs(5)), ..checked() };
    let client = EchoClient::new(in_memory(server.observer(Arc::<Counts>::clone(&counts)), limits));
    for opened in 1..=2 {
        let mut request = Request::new(text("beside the watch"));
        request.set_timeout(Duration::from_secs(1));
        client.call(request).await.unwrap();
        sleep(Duration::from_mins(1)).await;
        assert_eq!((counts.get("opened"), counts.get("closed")), (opened, opened));
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_a_watch_alone_is_pinged() {
    let settings = Settings { keepalive_interval: Some(Duration::from_secs(10)), ..checked() };
    let client = piped(settings, |number, mut pipe| async move {
        greet(&mut pipe).await;
        while let Some((kind, stream)) = next_frame(&mut pipe).await {
            // The first falls silent once it has reported that it does not serve.
            if kind == 0 {
                let answer = match (number, stream) {
                    (0, _) => report(stream, 2),
                    (_, 1) => report(stream, 1),
                    _ => [head(stream), rest(stream)].concat(),
                };
                pipe.write_all(&answer).await.unwrap();
            }
        }
    });
    let start = Instant::now();
    client.call(patient("to the second")).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_checked_before_a_call_beside_a_watch() {
    let socket = Socket::new("silent");
    let listener = std::os::unix::net::UnixListener::bind(&socket.0).unwrap();
    let client = lazy(shop(vec![socket.address()], checked()));
    let readiness = client.clone();
    let readiness = tokio::spawn(async move { readiness.channel().ready().await });
    sleep(Duration::from_millis(1)).await;
    let (mut connection, _) = listener.accept().unwrap();
    for bytes in [frame(4, 0, 0, &[]), report(1, 1)] {
        connection.write_all(&bytes).unwrap();
        sleep(Duration::from_millis(1)).await;
    }
    readiness.await.unwrap().unwrap();
    sleep(Duration::from_secs(1)).await;
    listener.set_nonblocking(true).unwrap();
    serve(UnixListener::from_std(listener).unwrap(), pending());
    // The runtime learns that it has ended when it next polls its sockets.
    drop(connection);
    client.call(text("to the next connection")).await.unwrap();
}

#[tokio::test]
async fn a_resolver_is_asked_before_each_connection() {
    let addresses = Arc::new(Mutex::new(Vec::new()));
    let settings = Settings { reconnect_first: Duration::from_millis(1), ..Settings::default() };
    let builder = Channel::builder("http://shop.example").unwrap().resolver(Moving(Arc::clone(&addresses)));
    let channel = builder.settings(settings).connect_lazy().unwrap();
    let error = channel.ready().await.unwrap_err().to_string();
    assert_eq!(error, "cannot reach shop.example: the resolver knows no address");
    let client = EchoClient::new(channel);
    for _ in 0..2 {
        let server = Running::new(Limits::default()).await;
        *addresses.lock().unwrap() = vec![server.address];
        let mut request = Request::new(text("moved"));
        request.set_wait_for_ready(true);
        client.call(request).await.unwrap();
        server.stopped().await;
    }
}

#[tokio::test]
async fn a_unix_socket_is_an_address() {
    let path = std::env::temp_dir().join(format!("quire-rpc-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = Server::builder().add_service(EchoServer::new(EchoService));
    tokio::spawn(server.serve_incoming(listener, pending()));
    let channel = Channel::builder(&format!("unix:{}", path.display())).unwrap().connect().await.unwrap();
    let answer = EchoClient::new(channel).call(text("near")).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(answer.get_ref().payload, b"near");
}

#[tokio::test]
async fn a_server_of_this_process_needs_no_address() {
    let server = Server::builder().add_service(EchoServer::new(EchoService)).build();
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let settings = Settings { protocol: Protocol::Connect, http, ..Settings::default() };
        let builder = Channel::builder("http://here").unwrap().connector(server.clone()).settings(settings);
        let client = EchoClient::new(builder.connect().await.unwrap());
        let answer = client.call(text(&"long ".repeat(1000))).await.unwrap().into_inner();
        assert_eq!(answer.payload.len(), 5000);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_peer_of_an_abstract_socket_is_known_by_its_credentials() {
    let name = format!("quire-rpc-{}", std::process::id());
    let listener = UnixListener::bind(format!("\0{name}")).unwrap();
    let allow = |_: &str, request: &mut Request<()>| {
        let caller = request.peer().and_then(|peer| peer.credentials).and_then(|credentials| credentials.process);
        let ours = i32::try_from(std::process::id()).ok();
        if caller == ours { Err(Status::aborted("known")) } else { Err(Status::permission_denied("unknown")) }
    };
    let server = Server::builder().add_service(EchoServer::new(EchoService)).interceptor(allow);
    tokio::spawn(server.serve_incoming(listener, pending()));
    let channel = Channel::builder(&format!("unix-abstract:{name}")).unwrap().connect().await.unwrap();
    let status = EchoClient::new(channel).call(text("near")).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
}

#[tokio::test]
async fn streams_of_a_receiver_are_served_until_their_calls_have_ended() {
    let (give, streams) = mpsc::channel(1);
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder().add_service(EchoServer::new(EchoService));
    let serving = tokio::spawn(server.serve_incoming(streams, async { drop(stopped.await) }));
    let channel = Channel::builder("http://here").unwrap().connector(move || {
        let give = give.clone();
        async move {
            let (near, far) = tokio::io::duplex(1024);
            give.send(far).await.map_err(io::Error::other)?;
            Ok(near)
        }
    });
    let client = EchoClient::new(channel.connect().await.unwrap());
    let (sender, mut echoes) = open(&client).await;
    stop.send(()).unwrap();
    sender.send(text("to the end")).await.unwrap();
    assert_eq!(echoes.message().await.unwrap().unwrap().payload, b"to the end");
    assert!(!serving.is_finished());
    drop(sender);
    assert!(echoes.message().await.unwrap().is_none());
    serving.await.unwrap();
    client.call(text("too late")).await.unwrap_err();
}
