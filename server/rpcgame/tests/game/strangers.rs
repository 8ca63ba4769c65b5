//! The driver against servers other than Quire's, and against ports of another protocol.

use std::collections::VecDeque;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use quire_rpc::server::{Answer, Call, Later};
use quire_rpc::{Encoded, Request, Response, Status};
use rpcgame::driver::{Failure, Input, Options, Outcome, Pair, Progress, SILENCE, Standing, Transport, play};
use rpcgame::grpc::StreamService;
use rpcgame::grpc::wire::rpc_game_server::{RpcGame, RpcGameServer};
use rpcgame::grpc::wire::rpc_game_stream_server::RpcGameStreamServer;
use rpcgame::grpc::wire::{DoneRequest, DoneResponse, TryRequest, TryResponse};
use rpcgame::{Checksum, GameLimits, Games, hash, lean};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::support::{PATIENCE, serve, serve_lean};

/// A plausible number of threads for such a server.
const THREADS: usize = 12;

/// Order in which messages reach the threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Order of arrival.
    Kept,
    /// Bursts in reverse order, the worst case.
    Reversed,
}

/// Messages with shorter pauses form a burst.
const PAUSE: Duration = Duration::from_millis(5);

struct Job {
    serial: u64,
    name: Box<[u8]>,
    count: u64,
    answer: oneshot::Sender<u64>,
}

#[derive(Default)]
struct State {
    came: usize,
    together: Vec<Job>,
    queue: VecDeque<Job>,
    handled: u64,
    client: Checksum,
    server: Checksum,
}

/// A server that blocks one of a few threads for each message until its turn.
#[derive(Clone)]
struct Blocking {
    order: Order,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Blocking {
    fn new(order: Order) -> Self {
        let blocking = Self { order, state: Arc::default() };
        for _ in 0..THREADS {
            let mine = blocking.clone();
            // Threads that still wait when the test is over end with the process.
            std::thread::spawn(move || mine.work());
        }
        blocking
    }

    fn work(&self) {
        let (state, changed) = &*self.state;
        let mut held = state.lock().unwrap();
        loop {
            let Some(Job { serial, name, count, answer }) = held.queue.pop_front() else {
                held = changed.wait(held).unwrap();
                continue;
            };
            held = changed.wait_while(held, |state| state.handled + 1 < serial).unwrap();
            let value = hash(&name).wrapping_add(count).wrapping_add(held.handled);
            held.handled += 1;
            held.client.add(&name);
            held.client.add_number(count);
            held.server.add_number(value);
            changed.notify_all();
            answer.send(value).unwrap();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap()
    }

    async fn serve(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(quire_rpc::Server::builder().add_service(RpcGameServer::new(self)).serve(listener, pending()));
        address
    }
}

impl Blocking {
    async fn try_later(self, request: TryRequest) -> Result<Response<Encoded>, Status> {
        let [serial, count] = [request.serial, request.count].map(|number| number.parse().unwrap());
        let (answer, answered) = oneshot::channel();
        let came = {
            let held = &mut *self.lock();
            held.came += 1;
            held.together.push(Job { serial, name: request.name.into_bytes().into(), count, answer });
            held.came
        };
        if self.order == Order::Reversed {
            tokio::time::sleep(PAUSE).await;
        }
        {
            let held = &mut *self.lock();
            if self.order == Order::Kept || held.came == came {
                held.queue.extend(held.together.drain(..).rev());
                self.state.1.notify_all();
            }
        }
        let value = answered.await.map_err(|_| Status::internal("no thread is left"))?;
        Ok(Response::new(Encoded::of(TryResponse { value: value.to_string() })))
    }
}

impl RpcGame for Blocking {
    fn r#try(&self, call: Call<'_, TryRequest>) -> Answer<impl Later + use<>> {
        call.later(|request| self.clone().try_later(request.into_inner()))
    }

    async fn done(&self, _: Request<DoneRequest>) -> Result<Response<DoneResponse>, Status> {
        let held = self.lock();
        let [client_checksum, server_checksum] =
            [&held.client, &held.server].map(|sum| format!("{:016x}", sum.value()).into_bytes());
        Ok(Response::new(DoneResponse { client_checksum, server_checksum }))
    }
}

fn input() -> Input {
    Input::new(vec![Pair { name: b"a name".as_slice().into(), count: 5 }]).unwrap()
}

async fn play_at(address: impl ToString, transport: Transport, messages: u64) -> Result<Outcome, Failure> {
    let (address, timeout) = (address.to_string(), Some(PATIENCE));
    let options = Options { address, transport, messages, window: None, timeout, token: None, tls: None };
    play(&input(), &options, |_| {}).await
}

#[tokio::test]
async fn a_server_that_blocks_a_thread_for_each_early_message_is_played_to_the_end() {
    let address = Blocking::new(Order::Kept).serve().await;
    let outcome = play_at(address, Transport::Windowed, 5000).await.unwrap();
    assert!(outcome.matches() && outcome.window_found.is_some(), "{outcome}");
    assert!(outcome.to_string().contains("the window grew from 1 to "), "{outcome}");
}

/// Every further call in flight makes this server faster, until there are more than threads.
#[tokio::test]
async fn messages_that_reach_few_threads_in_another_order_do_not_stop_the_game() {
    let address = Blocking::new(Order::Reversed).serve().await;
    let outcome = play_at(address, Transport::Windowed, 1500).await.unwrap();
    assert!(outcome.matches() && outcome.window_found.is_some_and(|window| window <= 8), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn a_given_window_is_kept_and_a_game_that_it_stops_says_where_and_what_to_do() {
    let address = Blocking::new(Order::Reversed).serve().await.to_string();
    let (transport, timeout) = (Transport::Windowed, Some(3 * SILENCE));
    let options = Options { address, transport, messages: 64, window: Some(64), timeout, token: None, tls: None };
    let mut told = Vec::new();
    let stopped = play(&input(), &options, |progress| told.push(progress)).await.unwrap_err();
    let standing = Standing { serial: 1, under_way: 64 };
    assert_eq!(told, [Progress::Silent(standing)]);
    assert!(matches!(stopped, Failure::Late { standing: Some(at), .. } if at == standing), "{stopped}");
    says(&stopped, ["within 15s: message 1 is not answered, and 64", "smaller --window, or --transport unary"]);
}

#[track_caller]
fn says(failure: &Failure, words: [&str; 2]) {
    let said = failure.to_string();
    assert!(words.iter().all(|words| said.contains(words)), "{said}");
}

#[tokio::test]
async fn a_server_without_the_stream_is_told_with_the_transports_it_has() {
    let address = Blocking::new(Order::Kept).serve().await;
    let unserved = play_at(address, Transport::Stream, 10).await.unwrap_err();
    says(&unserved, ["does not serve RPCGameStream", "use --transport windowed or unary"]);
}

#[tokio::test]
async fn a_server_without_the_game_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = RpcGameStreamServer::new(StreamService::new(Games::new(GameLimits::default())));
    tokio::spawn(quire_rpc::Server::builder().add_service(service).serve(listener, pending()));
    for transport in [Transport::Unary, Transport::Windowed] {
        let unserved = play_at(address, transport, 10).await.unwrap_err();
        says(&unserved, ["does not serve the RPC game", "name the address of a server that does"]);
    }
}

#[tokio::test]
async fn grpc_at_a_lean_port_is_told_so() {
    let (address, _) = serve_lean(lean::Limits::default()).await;
    for transport in [Transport::Unary, Transport::Windowed, Transport::Stream] {
        let failed = play_at(address, transport, 10).await.unwrap_err();
        says(&failed, ["speaks the lean protocol and not gRPC", "use --transport lean"]);
    }
}

#[tokio::test]
async fn lean_at_a_grpc_port_is_told_so() {
    let (address, _) = serve(GameLimits::default()).await;
    let failed = play_at(address, Transport::Lean, 10).await.unwrap_err();
    says(&failed, ["does not speak the lean protocol", "rpcgame.lean_listen"]);
}

/// A server that sends these bytes first, and nothing more.
async fn speaks(first: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(first).await.unwrap();
        // Until the client has gone.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    address
}

#[tokio::test]
async fn lean_names_what_else_answers() {
    let cases: [(&[u8], &str); 4] = [
        (b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\x01\0", "answers as HTTP/2, as gRPC does"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers as HTTP/1.1"),
        (&[0x15, 3, 3, 0, 2, 2, 50], "speaks TLS (write https://)"),
        (b"220 mail.example ESMTP\r\n", "answers in another way"),
    ];
    for (first, what) in cases {
        let failed = play_at(speaks(first).await, Transport::Lean, 10).await.unwrap_err();
        says(&failed, [what, "use --transport windowed for gRPC"]);
    }
}

#[tokio::test(start_paused = true)]
async fn lean_waits_only_so_long_for_a_greeting() {
    let failed = play_at(speaks(b"").await, Transport::Lean, 10).await.unwrap_err();
    says(&failed, ["takes a greeting without an answer", "rpcgame.lean_listen"]);
}
