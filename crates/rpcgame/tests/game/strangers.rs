//! The driver against servers that are not Quire's, and against ports of another protocol.

use std::collections::VecDeque;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use grpc::{Request, Response, Status};
use rpcgame::driver::{Failure, Input, Options, Outcome, Pair, Standing, Transport, play};
use rpcgame::grpc::StreamService;
use rpcgame::grpc::messages::{TRY_RESPONSE_BYTES_MAX, Try, write_value};
use rpcgame::grpc::raw::{RawTryRequest, RawTryResponse};
use rpcgame::grpc::wire::rpc_game_server::{RpcGame, RpcGameServer};
use rpcgame::grpc::wire::rpc_game_stream_server::RpcGameStreamServer;
use rpcgame::grpc::wire::{DoneRequest, DoneResponse};
use rpcgame::{Checksum, Games, Settings, hash, lean};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::support::{PATIENCE, serve, serve_lean};

/// As many as such a server may well have.
const THREADS: usize = 12;

/// Which of the messages that have no thread yet gets the next one.
#[derive(Clone, Copy)]
enum Next {
    /// The first that came.
    First,
    /// The last that came, once so many have come.
    Last(usize),
}

struct Job {
    serial: u64,
    name: Box<[u8]>,
    count: u64,
    answer: oneshot::Sender<u64>,
}

#[derive(Default)]
struct State {
    came: usize,
    queue: VecDeque<Job>,
    handled: u64,
    client: Checksum,
    server: Checksum,
}

/// Blocks a thread of a few for each message until its turn comes.
#[derive(Clone)]
struct Blocking {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Blocking {
    fn new(next: Next) -> Self {
        let blocking = Self { state: Arc::default() };
        for _ in 0..THREADS {
            let mine = blocking.clone();
            // What still waits when the test is over ends with the process.
            std::thread::spawn(move || mine.work(next));
        }
        blocking
    }

    fn work(&self, next: Next) {
        let (state, changed) = &*self.state;
        let mut held = state.lock().unwrap();
        loop {
            let job = match next {
                Next::First => held.queue.pop_front(),
                Next::Last(least) if held.came >= least => held.queue.pop_back(),
                Next::Last(_) => None,
            };
            let Some(Job { serial, name, count, answer }) = job else {
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

    async fn serve(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(grpc::Server::builder().add_service(RpcGameServer::new(self)).serve(listener, pending()));
        address
    }
}

impl RpcGame for Blocking {
    async fn r#try(&self, request: Request<RawTryRequest>) -> Result<Response<RawTryResponse>, Status> {
        let Try { serial, name, count } = Try::read(request.get_ref().bytes(), usize::MAX).unwrap();
        let (answer, answered) = oneshot::channel();
        let (state, changed) = &*self.state;
        {
            let mut held = state.lock().unwrap();
            held.came += 1;
            held.queue.push_back(Job { serial, name: name.into(), count, answer });
        }
        changed.notify_all();
        let value = answered.await.map_err(|_| Status::internal("no thread is left"))?;
        let mut response = RawTryResponse::default();
        response.bytes_mut().extend_from_slice(write_value(value, &mut [0; TRY_RESPONSE_BYTES_MAX]));
        Ok(Response::new(response))
    }

    async fn done(&self, _: Request<DoneRequest>) -> Result<Response<DoneResponse>, Status> {
        let held = self.state.0.lock().unwrap();
        let [client_checksum, server_checksum] =
            [&held.client, &held.server].map(|sum| format!("{:016x}", sum.value()).into_bytes());
        Ok(Response::new(DoneResponse { client_checksum, server_checksum }))
    }
}

async fn play_at(
    address: impl ToString,
    transport: Transport,
    messages: u64,
    window: Option<u64>,
    timeout: Duration,
) -> Result<Outcome, Failure> {
    let input = Input::new(vec![Pair { name: b"a name".as_slice().into(), count: 5 }]).unwrap();
    let options = Options { address: address.to_string(), transport, messages, window, timeout: Some(timeout) };
    play(&input, &options, |_| {}).await
}

#[tokio::test]
async fn a_server_that_blocks_a_thread_for_each_early_message_is_played_to_the_end() {
    let address = Blocking::new(Next::First).serve().await;
    let outcome = play_at(address, Transport::Windowed, 5000, None, PATIENCE).await.unwrap();
    assert!(outcome.matches() && outcome.window_found.is_some(), "{outcome}");
    assert!(outcome.to_string().contains("the window grew from 1 to "), "{outcome}");
}

/// In so few messages the window cannot grow beyond the threads there are, however the rates turn out.
#[tokio::test]
async fn a_game_begins_with_a_window_that_few_threads_can_hold_in_any_order() {
    let address = Blocking::new(Next::Last(0)).serve().await;
    let outcome = play_at(address, Transport::Windowed, 200, None, PATIENCE).await.unwrap();
    assert!(outcome.matches() && outcome.window_found.is_some_and(|window| window <= 8), "{outcome}");
}

#[tokio::test]
async fn a_given_window_is_kept_and_a_game_that_it_stops_says_where_and_what_to_do() {
    let address = Blocking::new(Next::Last(64)).serve().await;
    let stopped = play_at(address, Transport::Windowed, 64, Some(64), Duration::from_millis(300)).await.unwrap_err();
    let standing = Standing { serial: 1, under_way: 64 };
    assert!(matches!(stopped, Failure::Late { standing: Some(at), .. } if at == standing), "{stopped}");
    let said = stopped.to_string();
    for words in ["within 300ms: message 1 is not answered, and 64", "smaller --window, or --transport unary"] {
        assert!(said.contains(words), "{said}");
    }
}

#[track_caller]
fn says(failure: &Failure, words: [&str; 2]) {
    let said = failure.to_string();
    assert!(words.iter().all(|words| said.contains(words)), "{said}");
}

#[tokio::test]
async fn a_server_without_the_stream_is_told_with_the_transports_it_has() {
    let address = Blocking::new(Next::First).serve().await;
    let unserved = play_at(address, Transport::Stream, 10, None, PATIENCE).await.unwrap_err();
    says(&unserved, ["does not serve RPCGameStream", "use --transport windowed or unary"]);
}

#[tokio::test]
async fn a_server_without_the_game_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = RpcGameStreamServer::new(StreamService::new(Games::new(Settings::default())));
    tokio::spawn(grpc::Server::builder().add_service(service).serve(listener, pending()));
    for transport in [Transport::Unary, Transport::Windowed] {
        let unserved = play_at(address, transport, 10, None, PATIENCE).await.unwrap_err();
        says(&unserved, ["does not serve the RPC game", "name the address of a server that does"]);
    }
}

#[tokio::test]
async fn grpc_at_a_lean_port_is_told_so() {
    let (address, _) = serve_lean(lean::Limits::default()).await;
    for transport in [Transport::Unary, Transport::Windowed, Transport::Stream] {
        let failed = play_at(address, transport, 10, None, PATIENCE).await.unwrap_err();
        says(&failed, ["speaks the lean protocol and not gRPC", "use --transport lean"]);
    }
}

#[tokio::test]
async fn lean_at_a_grpc_port_is_told_so() {
    let (address, _) = serve(Settings::default()).await;
    let failed = play_at(address, Transport::Lean, 10, None, PATIENCE).await.unwrap_err();
    says(&failed, ["does not speak the lean protocol", "rpcgame.lean_listen"]);
}

/// A server whose first bytes are these, and which says nothing more.
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
    let cases: [(&[u8], &str); 3] = [
        (b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\x01\0", "answers as HTTP/2, as gRPC does"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers as HTTP/1.1"),
        (b"220 mail.example ESMTP\r\n", "answers in another way"),
    ];
    for (first, what) in cases {
        let failed = play_at(speaks(first).await, Transport::Lean, 10, None, PATIENCE).await.unwrap_err();
        says(&failed, [what, "use --transport windowed for gRPC"]);
    }
}

#[tokio::test(start_paused = true)]
async fn lean_waits_only_so_long_for_a_greeting() {
    let failed = play_at(speaks(b"").await, Transport::Lean, 10, None, PATIENCE).await.unwrap_err();
    says(&failed, ["takes a greeting without an answer", "rpcgame.lean_listen"]);
}
