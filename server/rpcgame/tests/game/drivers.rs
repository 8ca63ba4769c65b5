//! The driver over every transport, against checksums of another implementation.

use rpcgame::driver::{Failure, Input, Options, Outcome, Pair, Progress, Transport, play};
use rpcgame::{GameLimits, Sums, lean};

use crate::support::{PATIENCE, input_path, serve, serve_lean};

const TRANSPORTS: [Transport; 4] = [Transport::Unary, Transport::Windowed, Transport::Stream, Transport::Lean];

/// Messages, and the checksums of both sides, computed by `tests/judges/rpcgame_sums.py` with Python's xxhash 4.1.
type BySums = [(u64, u64, u64); 5];

const LINES: BySums = [
    (0, 0x2d06_8005_38d3_94c2, 0x2d06_8005_38d3_94c2),
    (1, 0x2fbc_5935_64db_792e, 0x2408_f396_583d_f097),
    (100, 0xad8d_2138_2b30_f26c, 0xa160_05f2_0c5b_4648),
    (1000, 0x1abd_64dc_d639_0560, 0xae7a_dd10_fb7c_c1e8),
    (25_000, 0x5016_24d6_b59b_da8b, 0x7cb7_85cb_14af_d3e3),
];

/// Lines with more than a name and a count, and lines to be skipped.
const ODD_LINES: BySums = [
    (0, 0x2d06_8005_38d3_94c2, 0x2d06_8005_38d3_94c2),
    (1, 0x8ca8_3b7e_03d2_d706, 0xa2a2_cc5d_5419_8964),
    (100, 0x167d_7685_e540_ab7f, 0x565d_04bc_a1c3_d1c8),
    (1000, 0x2ecd_8174_c99e_21b3, 0x8b59_2e54_5202_13ba),
    (25_000, 0xff84_5bcf_6db4_ad71, 0x97af_1d11_e829_e8fc),
];

struct Servers {
    grpc: String,
    lean: String,
}

impl Servers {
    async fn start() -> Self {
        let grpc = serve(GameLimits::default()).await.0.to_string();
        Self { grpc, lean: serve_lean(lean::Limits::default()).await.0.to_string() }
    }

    fn options(&self, transport: Transport, messages: u64, window: Option<u64>) -> Options {
        let address = if transport == Transport::Lean { &self.lean } else { &self.grpc }.clone();
        Options { address, transport, messages, window, timeout: Some(PATIENCE), token: None, tls: None }
    }

    async fn play(
        &self,
        input: &Input,
        transport: Transport,
        messages: u64,
        window: Option<u64>,
    ) -> Result<Outcome, Failure> {
        play(input, &self.options(transport, messages, window), |_| {}).await
    }
}

#[tokio::test]
async fn every_transport_comes_to_the_checksums_of_another_implementation() {
    let servers = Servers::start().await;
    let files = [("lines.txt", 37, 5, LINES), ("odd-lines.txt", 13, 11, ODD_LINES)];
    for (file, pairs, skipped, expected) in files {
        let input = Input::read(&input_path().with_file_name(file)).unwrap();
        assert_eq!((input.pairs().len(), input.skipped()), (pairs, skipped), "{file}");
        for (transport, (messages, client, server)) in
            TRANSPORTS.into_iter().flat_map(|transport| expected.map(|sums| (transport, sums)))
        {
            if transport == Transport::Unary && messages > 1000 {
                continue;
            }
            let outcome = servers.play(&input, transport, messages, None).await.unwrap();
            let sums = Sums { client, server };
            assert_eq!((outcome.ours, outcome.theirs), (sums, sums), "{file}, {transport:?}, {messages} messages");
            assert_eq!(outcome.messages, messages);
            assert_eq!(outcome.window_found.is_some(), transport == Transport::Windowed);
            assert!(outcome.matches());
        }
    }
}

#[tokio::test]
async fn any_window_gives_the_same() {
    let servers = Servers::start().await;
    let input = Input::read(&input_path()).unwrap();
    let (messages, client, server) = LINES[3];
    for transport in TRANSPORTS {
        for window in [1, 2, 7, 999, 1001, 100_000] {
            let outcome = servers.play(&input, transport, messages, Some(window)).await.unwrap();
            assert_eq!(outcome.theirs, Sums { client, server }, "{transport:?}, window {window}");
            assert_eq!(outcome.window_found, None, "it was given");
        }
    }
}

#[tokio::test]
async fn progress_is_told_every_ten_thousand_messages() {
    let servers = Servers::start().await;
    let input = Input::read(&input_path()).unwrap();
    for transport in [Transport::Windowed, Transport::Stream, Transport::Lean] {
        let mut told = Vec::new();
        let options = servers.options(transport, 25_000, None);
        play(&input, &options, |progress| told.push(progress)).await.unwrap();
        assert_eq!(told, [10_000, 20_000].map(Progress::Answered), "{transport:?}");
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
        let outcome = servers.play(&input, transport, 9, None).await.unwrap();
        assert!(outcome.matches(), "{transport:?}");
        sums.push(outcome.theirs);
    }
    assert!(sums.iter().all(|other| *other == sums[0]));
}

#[tokio::test]
async fn names_of_any_bytes_travel_by_stream_and_lean_and_are_refused_as_text() {
    let servers = Servers::start().await;
    let input = Input::new(vec![pair("text", 1), pair([0xff, 0, 0xc0], 2)]).unwrap();
    let stream = servers.play(&input, Transport::Stream, 10, Some(4)).await.unwrap();
    let lean = servers.play(&input, Transport::Lean, 10, Some(4)).await.unwrap();
    assert!(stream.matches() && lean.matches());
    assert_eq!(stream.theirs, lean.theirs);
    for transport in [Transport::Unary, Transport::Windowed] {
        let refused = servers.play(&input, transport, 10, Some(4)).await.unwrap_err().to_string();
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
    let options = Options { address, transport, messages: 5000, window: Some(64), timeout, token: None, tls: None };
    assert!(play(&input, &options, |_| {}).await.unwrap().matches());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let input = Input::new(vec![pair("a", 1)]).unwrap();
    // Port 1 needs privileges to listen on, and no one does.
    for transport in TRANSPORTS {
        let address = "127.0.0.1:1".to_owned();
        let options = Options {
            address,
            transport,
            messages: 1,
            window: Some(1),
            timeout: Some(PATIENCE),
            token: None,
            tls: None,
        };
        let error = play(&input, &options, |_| {}).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot play at 127.0.0.1:1: "), "{error}");
    }
}

#[tokio::test]
async fn a_game_that_does_not_end_in_time_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let input = Input::new(vec![pair("a", 1)]).unwrap();
    let (address, timeout) = (silent.local_addr().unwrap().to_string(), Some(std::time::Duration::from_millis(50)));
    let options =
        Options { address, transport: Transport::Lean, messages: 1, window: Some(1), timeout, token: None, tls: None };
    assert!(matches!(play(&input, &options, |_| {}).await, Err(Failure::Late { standing: None, .. })));
}
