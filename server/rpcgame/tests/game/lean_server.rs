//! The lean protocol on sockets: slow, silent and excess clients, and the server's shutdown.

use std::future::pending;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use quire_rpc::server::Memory;
use rpcgame::driver::{Input, Options, Pair, Transport, play};
use rpcgame::lean::{
    Connection, Fault, FaultCode, Hello, Keep, Limits, Server, Session, SessionLimits, TableLimits, VERSION,
};
use rpcgame::{GameLimits, Games, Sums};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::support::{PATIENCE, serve_lean, wait_for};

fn hello() -> Connection {
    let table = TableLimits { names_max: 8, bytes_max: 1 << 20 };
    let hello = Hello { version_min: VERSION, version_max: VERSION, window_messages: 1 << 20, table };
    Connection::new(hello, Keep::First)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Writes the client's output.
fn say(stream: &mut TcpStream, client: &mut Connection) {
    stream.write_all(client.output()).unwrap();
    client.advance(client.output().len());
}

/// Reads to the end and returns the server's fault.
fn told(mut stream: TcpStream) -> FaultCode {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    hello().receive(&mut &bytes[..], |_| {}).unwrap_err().code
}

/// Connections that ended for this reason.
fn ends(server: &Server, reason: &str) -> u64 {
    server.games().counts().lean_ends().find(|(name, _)| *name == reason).expect("a reason").1
}

async fn plays(address: SocketAddr) -> bool {
    let input = Input::new(vec![Pair { name: b"a".as_slice().into(), count: 1 }]).unwrap();
    let (transport, timeout) = (Transport::Lean, Some(PATIENCE));
    let options = Options {
        address: address.to_string(),
        transport,
        messages: 10,
        window: Some(4),
        timeout,
        token: None,
        tls: None,
    };
    play(&input, &options, |_| {}).await.is_ok_and(|outcome| outcome.matches())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_too_many_is_told_and_closed() {
    let (address, server) = serve_lean(Limits { connections_max: 1.into(), ..Limits::default() }).await;
    let first = connect(address);
    wait_for("the first connection", || server.games().counts().lean_connections() == 1).await;
    assert_eq!(told(connect(address)), FaultCode::Limit);
    wait_for("its end", || ends(&server, "superfluous") == 1).await;
    drop(first);
    wait_for("its place", || server.games().counts().lean_connections() == 0).await;
    assert!(plays(address).await);
    assert_eq!(server.games().counts().lean_messages(), 10);
    wait_for("two ends", || ends(&server, "client") == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_right_behind_its_checksums_has_played_the_game() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut session, mut bytes) = (Session::new(SessionLimits::default()), Vec::new());
        while session.take_games_ended().0 == 0 {
            // All of it in one piece, including the last frame.
            stream.write_all(session.output()).await.unwrap();
            session.advance(session.output().len());
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
            let mut rest = &bytes[..];
            session.receive(&mut rest).unwrap();
            bytes = rest.to_vec();
        }
        session.end(Fault { code: FaultCode::Stopping, text: "the server stops".into() });
        stream.write_all(session.output()).await.unwrap();
    });
    assert!(plays(address).await);
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_are_counted_by_what_was_wrong() {
    let (address, server) = serve_lean(Limits::default()).await;
    let greeting = hello();
    let later_version = [&[15, 0, 0, 0, 1][..], b"quire-lean", &[2, 9, 1, 0, 0]].concat();
    let after_greeting = |frame: &[u8]| [greeting.output(), frame].concat();
    for (bytes, reason) in [
        (vec![0, 0, 0, 0, 2], "malformed"),
        (later_version, "version"),
        (vec![255, 255, 255, 0, 1], "limit"),
        (after_greeting(&[2, 0, 0, 0, 2, 7, 0]), "serial"),
        (after_greeting(&[11, 0, 0, 0, 2, 1, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0]), "reference"),
        (after_greeting(&[4, 0, 0, 0, 2, 1, 0x81, 0x80, 0x04]), "window"),
    ] {
        let mut stream = connect(address);
        stream.write_all(&bytes).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        wait_for(reason, || ends(&server, reason) == 1).await;
    }
    assert_eq!(server.games().counts().lean_ends().map(|(_, count)| count).sum::<u64>(), 6, "each of them once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_finishes_no_frame_is_told_and_closed() {
    let (address, server) = serve_lean(Limits { idle: Duration::from_millis(50), ..Limits::default() }).await;
    let silent = connect(address);
    let mut greeted = connect(address);
    say(&mut greeted, &mut hello());
    let mut within_a_frame = connect(address);
    within_a_frame.write_all(&[40, 0, 0, 0, 1, b'q']).unwrap();
    for stream in [silent, within_a_frame] {
        assert_eq!(told(stream), FaultCode::Idle);
    }
    greeted.read_to_end(&mut Vec::new()).unwrap();
    wait_for("their places", || server.games().counts().lean_connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_is_cut_off_and_holds_up_no_other() {
    let limits = Limits { write_timeout: Duration::from_millis(100), ..Limits::default() };
    let (address, server) = serve_lean(limits).await;
    let mut deaf = connect(address);
    deaf.set_write_timeout(Some(PATIENCE)).unwrap();
    say(&mut deaf, &mut hello());
    // Messages without a name, as many per frame as the window allows, until the server accepts no more.
    let mut serial = 1_u64;
    let sending = tokio::task::spawn_blocking(move || {
        loop {
            let count = 1000_u64;
            let mut body = Vec::new();
            for mut number in [serial, count] {
                while number >= 0x80 {
                    body.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
                    number >>= 7;
                }
                body.push(u8::try_from(number).unwrap());
            }
            body.extend([0; 10].repeat(1000));
            let head = [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], &[2]].concat();
            if deaf.write_all(&[head, body].concat()).is_err() {
                return;
            }
            serial += count;
        }
    });
    assert!(plays(address).await, "meanwhile others play");
    sending.await.unwrap();
    wait_for("its place", || server.games().counts().lean_connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_leaves_nothing() {
    let (address, server) = serve_lean(Limits::default()).await;
    let mut vanishing = connect(address);
    say(&mut vanishing, &mut hello());
    wait_for("the connection", || server.games().counts().lean_connections() == 1).await;
    drop(vanishing);
    wait_for("its place", || server.games().counts().lean_connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_lets_the_game_end_and_tells_the_others() {
    let games = Games::new(GameLimits::default());
    let server = Server::new(games.clone(), Limits::default(), PATIENCE);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener, Vec::new(), async { drop(stopped.await) }).await }
    });
    let between_games = connect(address);
    let mut playing = connect(address);
    let mut client = hello();
    let mut answers = Vec::new();
    say(&mut playing, &mut client);
    while client.welcome().is_none() {
        let mut piece = [0; 100];
        let count = playing.read(&mut piece).unwrap();
        answers.extend_from_slice(&piece[..count]);
        let mut rest = &answers[..];
        client.receive(&mut rest, |_| {}).unwrap();
        answers = rest.to_vec();
    }
    client.send([(0, &b"name"[..], 1)].into_iter()).unwrap();
    say(&mut playing, &mut client);
    playing.read_exact(&mut [0; 15]).unwrap();
    let begun_at = Instant::now();
    let mut beginning = connect(address);
    wait_for("the connections", || games.counts().lean_connections() == 3).await;
    stop.send(()).unwrap();
    // A server that was too slow has closed it, perhaps unread, but not before this time.
    let _ = beginning.write_all(hello().output());
    let mut answer = [0; 5];
    let read = beginning.read_exact(&mut answer);
    let is_late = begun_at.elapsed() >= quire_net::QUIET_MAX;
    assert!(is_late || read.is_ok() && answer[4] == 0x81, "a frame that was on its way is answered");
    assert_eq!(told(between_games), FaultCode::Stopping);
    client.done(Sums { client: 0, server: 0 });
    say(&mut playing, &mut client);
    let mut end = Vec::new();
    playing.read_to_end(&mut end).unwrap();
    assert_eq!(end[4], 0x83, "the sums come before the end");
    serving.await.unwrap();
    assert_eq!(*games.ended().borrow(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_frames_are_charged_and_the_largest_connection_is_cut() {
    let memory = Memory::new(3 << 20, usize::MAX);
    let games = Games::new(GameLimits::default());
    let server = Server::new(games, Limits::default(), PATIENCE).charged_to(memory.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { server.serve(listener, Vec::new(), pending()).await });
    let begin = |bytes: usize| {
        let mut stream = connect(address);
        say(&mut stream, &mut hello());
        let head = [&2_000_000_u32.to_le_bytes()[..], &[2]].concat();
        stream.write_all(&[head, vec![0; bytes]].concat()).unwrap();
        stream
    };
    let small = begin(100_000);
    wait_for("its charge", || memory.buffers() > 100_000).await;
    let large = begin(1_500_000);
    wait_for("its charge", || memory.buffers() > 1_500_000).await;
    let medium = begin(600_000);
    let mut end = Vec::new();
    { large }.read_to_end(&mut end).unwrap();
    let text = String::from_utf8_lossy(&end);
    assert!(text.contains("limits.buffer_bytes"), "{text}");
    wait_for("the others' charge", || (600_000..2 << 20).contains(&memory.buffers())).await;
    drop((small, medium));
    wait_for("no charge", || memory.buffers() == 0).await;
}
