//! The driver over every transport, against checksums of another implementation.

use rpcgame::driver::{Failure, Input, Options, Outcome, Pair, Transport, play};
use rpcgame::{Settings, Sums, lean};

use crate::support::{PATIENCE, input_path, serve, serve_lean};

const TRANSPORTS: [Transport; 4] = [Transport::Unary, Transport::Windowed, Transport::Stream, Transport::Lean];

/// Messages, and the checksums of both sides over `data/lines.txt`, by Python's xxhash 3 and:
///
/// ```python
/// import xxhash
/// pairs = []
/// for line in open("lines.txt", "rb").read().splitlines():
///     name, comma, count = line.rpartition(b",")
///     if comma and count.isdigit() and int(count) < 2**64:
///         pairs.append((name, int(count)))
/// client, server = xxhash.xxh3_64(), xxhash.xxh3_64()
/// for i in range(messages):
///     name, count = pairs[i % len(pairs)]
///     client.update(name + count.to_bytes(8, "little"))
///     server.update(((xxhash.xxh3_64_intdigest(name) + count + i) % 2**64).to_bytes(8, "little"))
/// print(messages, client.hexdigest(), server.hexdigest())
/// ```
const BY_PYTHON: [(u64, u64, u64); 5] = [
    (0, 0x2d06_8005_38d3_94c2, 0x2d06_8005_38d3_94c2),
    (1, 0x2fbc_5935_64db_792e, 0x2408_f396_583d_f097),
    (100, 0xf292_e724_9e41_f45a, 0x2abe_ddb2_da10_4a43),
    (1000, 0x5b50_816d_b5d3_823e, 0x07f5_b4a2_338b_7895),
    (25_000, 0xe484_7724_820e_102a, 0x268a_f24d_6a48_ae53),
];

struct Servers {
    grpc: String,
    lean: String,
}

impl Servers {
    async fn start() -> Self {
        let grpc = serve(Settings::default()).await.0.to_string();
        Self { grpc, lean: serve_lean(lean::Limits::default()).await.0.to_string() }
    }

    fn options(&self, transport: Transport, messages: u64, window: u64) -> Options {
        let address = if transport == Transport::Lean { &self.lean } else { &self.grpc }.clone();
        Options { address, transport, messages, window, timeout: Some(PATIENCE) }
    }

    async fn play(&self, input: &Input, transport: Transport, messages: u64, window: u64) -> Result<Outcome, Failure> {
        play(input, &self.options(transport, messages, window), |_| {}).await
    }
}

#[tokio::test]
async fn every_transport_comes_to_the_checksums_of_another_implementation() {
    let servers = Servers::start().await;
    let input = Input::read(&input_path()).unwrap();
    assert_eq!((input.pairs().len(), input.skipped()), (38, 4));
    for transport in TRANSPORTS {
        for (messages, client, server) in BY_PYTHON {
            if transport == Transport::Unary && messages > 1000 {
                continue;
            }
            let outcome = servers.play(&input, transport, messages, transport.window_default()).await.unwrap();
            let sums = Sums { client, server };
            assert_eq!((outcome.ours, outcome.theirs), (sums, sums), "{transport:?}, {messages} messages");
            assert_eq!(outcome.messages, messages);
            assert!(outcome.matches());
        }
    }
}

#[tokio::test]
async fn any_window_gives_the_same() {
    let servers = Servers::start().await;
    let input = Input::read(&input_path()).unwrap();
    let (messages, client, server) = BY_PYTHON[3];
    for transport in TRANSPORTS {
        for window in [1, 2, 7, 999, 1001, 100_000] {
            let outcome = servers.play(&input, transport, messages, window).await.unwrap();
            assert_eq!(outcome.theirs, Sums { client, server }, "{transport:?}, window {window}");
        }
    }
}

#[tokio::test]
async fn progress_is_told_every_ten_thousand_messages() {
    let servers = Servers::start().await;
    let input = Input::read(&input_path()).unwrap();
    for transport in [Transport::Windowed, Transport::Stream, Transport::Lean] {
        let mut told = Vec::new();
        let options = servers.options(transport, 25_000, transport.window_default());
        play(&input, &options, |messages| told.push(messages)).await.unwrap();
        assert_eq!(told, [10_000, 20_000], "{transport:?}");
    }
}

fn pair(name: impl Into<Vec<u8>>, count: u64) -> Pair {
    Pair { name: name.into().into(), count }
}

#[tokio::test]
async fn names_may_be_empty_or_a_mebibyte() {
    let servers = Servers::start().await;
    let input = Input::new(vec![pair("", 0), pair("x".repeat(1 << 20), u64::MAX), pair("", 5), pair("y", 1)]).unwrap();
    let mut sums = Vec::new();
    for transport in TRANSPORTS {
        let outcome = servers.play(&input, transport, 9, transport.window_default()).await.unwrap();
        assert!(outcome.matches(), "{transport:?}");
        sums.push(outcome.theirs);
    }
    assert!(sums.iter().all(|other| *other == sums[0]));
}

#[tokio::test]
async fn names_of_any_bytes_travel_by_stream_and_lean_and_are_refused_as_text() {
    let servers = Servers::start().await;
    let input = Input::new(vec![pair("text", 1), pair([0xff, 0, 0xc0], 2)]).unwrap();
    let stream = servers.play(&input, Transport::Stream, 10, 4).await.unwrap();
    let lean = servers.play(&input, Transport::Lean, 10, 4).await.unwrap();
    assert!(stream.matches() && lean.matches());
    assert_eq!(stream.theirs, lean.theirs);
    for transport in [Transport::Unary, Transport::Windowed] {
        let refused = servers.play(&input, transport, 10, 4).await.unwrap_err().to_string();
        assert!(refused.contains("pair 2") && refused.contains("--transport stream"), "{refused}");
    }
}

#[tokio::test]
async fn more_distinct_names_than_the_table_holds_are_no_trouble() {
    let mut limits = lean::Limits::default();
    limits.session.table.names_max = 10;
    let address = serve_lean(limits).await.0.to_string();
    let input = Input::new((0..100).map(|number| pair(format!("name {number}"), number)).collect()).unwrap();
    let (transport, timeout) = (Transport::Lean, Some(PATIENCE));
    let options = Options { address, transport, messages: 5000, window: 64, timeout };
    assert!(play(&input, &options, |_| {}).await.unwrap().matches());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let input = Input::new(vec![pair("a", 1)]).unwrap();
    // Port 1 needs privileges to listen on, and nobody does.
    for transport in TRANSPORTS {
        let address = "127.0.0.1:1".to_owned();
        let options = Options { address, transport, messages: 1, window: 1, timeout: Some(PATIENCE) };
        let error = play(&input, &options, |_| {}).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot play at 127.0.0.1:1: "), "{error}");
    }
}

#[tokio::test]
async fn a_game_that_does_not_end_in_time_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let input = Input::new(vec![pair("a", 1)]).unwrap();
    let (address, timeout) = (silent.local_addr().unwrap().to_string(), Some(std::time::Duration::from_millis(50)));
    let options = Options { address, transport: Transport::Lean, messages: 1, window: 1, timeout };
    assert!(matches!(play(&input, &options, |_| {}).await, Err(Failure::Late(_))));
}
