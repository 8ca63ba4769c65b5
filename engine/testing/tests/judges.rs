//! Third-party judges: h2spec, grpc-go's interoperability client and server, connectconformance, gRPC's
//! stubs of channelz for Python, and, with the feature `protobuf-testee`, protobuf's conformance suite.
//!
//! They run only on request (`cargo test -p rpc-testing --test judges -- --ignored`), with the folder they are
//! installed in named by `ENGINE_TOOLS`:
//!
//! ```text
//! go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible
//! go install google.golang.org/grpc/interop/client@v1.85.0
//! go install google.golang.org/grpc/interop/server@v1.85.0
//! go install connectrpc.com/conformance/cmd/connectconformance@v1.0.6
//! engine/testing/protobuf/install.sh target/tools
//! python3 -m venv target/tools/venv
//! target/tools/venv/bin/pip install --requirement tests/judges/requirements.txt
//! ```

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use quire_rpc::client::{Channel, Settings};
use quire_rpc::{Code, Request, Status, unfold};
use rpc_testing::interop_proto::test_service_client::TestServiceClient;
use rpc_testing::interop_proto::unimplemented_service_client::UnimplementedServiceClient;
use rpc_testing::interop_proto::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, StreamingInputCallRequest,
    StreamingOutputCallRequest,
};

fn tool(name: &str) -> PathBuf {
    let folder = std::env::var_os("ENGINE_TOOLS").expect("ENGINE_TOOLS names the folder the judges are installed in");
    PathBuf::from(folder).join(name)
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A server process; killed on drop.
struct Process(Child);

impl Process {
    fn serving(mut command: Command, address: SocketAddr) -> Self {
        let process = Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        for _ in 0..200 {
            if TcpStream::connect(address).is_ok() {
                return process;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not listen");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ours(binary: &str) -> (Process, SocketAddr) {
    let address = free_address();
    let mut command = Command::new(binary);
    command.arg(address.to_string());
    (Process::serving(command, address), address)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
#[ignore = "needs h2spec"]
fn h2spec_finds_no_failure() {
    let (_server, address) = ours(env!("CARGO_BIN_EXE_echo-server"));
    let port = address.port().to_string();
    let output = Command::new(tool("h2spec")).args(["-h", "127.0.0.1", "-p", &port, "-o", "5"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("145 tests, 145 passed, 0 skipped, 0 failed"), "{}", text(&output));
}

const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

#[test]
#[ignore = "needs grpc-go's interoperability client"]
fn grpc_go_client_is_content_with_our_server() {
    let (_server, address) = ours(env!("CARGO_BIN_EXE_interop-server"));
    for case in CASES {
        let output = Command::new(tool("client"))
            .arg("--server_host=127.0.0.1")
            .arg(format!("--server_port={}", address.port()))
            .arg(format!("--test_case={case}"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{case}: {}", text(&output));
    }
}

#[test]
#[ignore = "needs Python's grpcio-channelz and grpcio-reflection"]
fn channelz_is_read_by_grpcs_own_stubs() {
    let (_server, address) = ours(env!("CARGO_BIN_EXE_interop-server"));
    let output = Command::new(tool("../venv/bin/python"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/channelz.py"))
        .arg(address.to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// Errors of the suite itself: its HTTP/1.1 server may read a request's body after its response, and the deadline of its
/// client may pass while it reads the error that the same deadline caused.
const RACES: [&str; 2] = ["http: invalid Read on closed Body", "connect error JSON: unexpected end of JSON input"];
/// Reruns allowed, alone, for a case that met one of [`RACES`].
const RUNS_AGAIN: usize = 3;

#[expect(clippy::print_stdout, reason = "the report counts what was run again")]
fn connectconformance(mode: &str, program: &str) {
    let run = |only: &[&str]| {
        let output = Command::new(tool("connectconformance"))
            .args(["--conf", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance.yaml"), "--mode", mode])
            .args(only)
            .args(["--", program])
            .output()
            .unwrap();
        (output.status.success() && text(&output).contains(" 0 failed"), text(&output))
    };
    let (passed, report) = run(&[]);
    if passed {
        return;
    }
    let failed = failed_cases(&report);
    assert!(!failed.is_empty() && failed.iter().all(|(_, is_race)| *is_race), "{report}");
    for (case, _) in failed {
        let passed = (1..=RUNS_AGAIN).find(|_| run(&["--run", case]).0);
        let passed = passed.unwrap_or_else(|| panic!("{case} fails alone as well:\n{report}"));
        println!("run again: {case} met a race of the suite and passed alone, at run {passed}");
    }
}

/// Failed cases of a report, each with whether its error is one of [`RACES`].
fn failed_cases(report: &str) -> Vec<(&str, bool)> {
    let failures = report.split("FAILED: ").skip(1);
    failures
        .filter_map(|failure| {
            let (case, rest) = failure.split_once(":\n").or_else(|| failure.split_once('\n'))?;
            // An error is indented.
            let error: Vec<&str> = rest.lines().take_while(|line| line.starts_with([' ', '\t'])).collect();
            Some((case, RACES.iter().any(|race| error.iter().any(|line| line.contains(race)))))
        })
        .collect()
}

#[test]
fn failed_cases_are_read_with_their_errors() {
    let report = "FAILED: a/b:\n\thttp: invalid Read on closed Body\nFAILED: c/d:\n\twrong code\n\nTotal cases: 3\n";
    assert_eq!(failed_cases(report), [("a/b", true), ("c/d", false)]);
    assert_eq!(
        failed_cases("FAILED: e was expected to fail but did not\nTotal"),
        [("e was expected to fail but did not", false)]
    );
}

#[test]
#[ignore = "needs connectconformance"]
fn connectconformance_finds_no_failure_of_our_server() {
    connectconformance("server", env!("CARGO_BIN_EXE_conformance-server"));
}

#[test]
#[ignore = "needs connectconformance"]
fn connectconformance_finds_no_failure_of_our_channel() {
    connectconformance("client", env!("CARGO_BIN_EXE_conformance-client"));
}

/// Messages take both paths through the testee: decoded by prost, and as bytes.
#[cfg(feature = "protobuf-testee")]
#[test]
fn protobufs_suite_finds_no_failure_but_the_listed_ones() {
    for path in ["messages", "bytes"] {
        let list = format!("{}/protobuf/{path}.txt", env!("CARGO_MANIFEST_DIR"));
        let output = Command::new(tool("conformance_test_runner"))
            .args(["--enforce_recommended", "--maximum_edition", "2024", "--output_dir", env!("CARGO_TARGET_TMPDIR")])
            .args(["--failure_list", &list, env!("CARGO_BIN_EXE_protobuf-testee"), path])
            .output()
            .unwrap();
        assert!(
            output.status.success() && text(&output).contains(" 0 unexpected failures"),
            "{path}: {}",
            text(&output)
        );
    }
}

fn body(size: usize) -> Payload {
    Payload { r#type: 0, body: vec![0; size] }
}

fn parameters(size: i32) -> ResponseParameters {
    ResponseParameters { size, interval_us: 0 }
}

fn size(payload: Option<&Payload>) -> usize {
    payload.map_or(0, |payload| payload.body.len())
}

async fn unary_cases(client: &TestServiceClient) -> Result<(), Status> {
    client.empty_call(Empty {}).await?;
    let large = || SimpleRequest { response_size: 314_159, payload: Some(body(271_828)), ..SimpleRequest::default() };
    assert_eq!(size(client.unary_call(large()).await?.get_ref().payload.as_ref()), 314_159);

    let mut request = Request::new(large());
    request.metadata_mut().append("x-grpc-test-echo-initial", "test_initial_metadata_value").unwrap();
    request.metadata_mut().append_bin("x-grpc-test-echo-trailing-bin", &[0xab, 0xab, 0xab]).unwrap();
    let response = client.unary_call(request).await?;
    assert_eq!(response.metadata().get("x-grpc-test-echo-initial"), Some("test_initial_metadata_value"));
    assert_eq!(response.trailers().get_bin("x-grpc-test-echo-trailing-bin").unwrap(), [0xab, 0xab, 0xab]);

    for message in ["test status message", "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"] {
        let status = Some(EchoStatus { code: 2, message: message.to_owned() });
        let status = client.unary_call(SimpleRequest { response_status: status, ..SimpleRequest::default() }).await;
        let status = status.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, message));
    }
    assert_eq!(client.unimplemented_call(Empty {}).await.unwrap_err().code(), Code::Unimplemented);
    Ok(())
}

async fn streaming_cases(client: &TestServiceClient) -> Result<(), Status> {
    let sizes = unfold([27_182, 8, 1_828, 45_904].into_iter(), |mut sizes| async move {
        Some((StreamingInputCallRequest { payload: Some(body(sizes.next()?)) }, sizes))
    });
    assert_eq!(client.streaming_input_call(sizes).await?.get_ref().aggregated_payload_size, 74_922);

    let wanted = [31_415, 9, 2_653, 58_979];
    let request = StreamingOutputCallRequest {
        response_parameters: wanted.map(parameters).to_vec(),
        ..StreamingOutputCallRequest::default()
    };
    let mut replies = client.streaming_output_call(request).await?.into_inner();
    for expected in wanted {
        let reply = replies.message().await?.unwrap();
        assert_eq!(size(reply.payload.as_ref()), usize::try_from(expected).unwrap());
    }
    assert!(replies.message().await?.is_none());

    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let requests = unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    let request = |size| StreamingOutputCallRequest {
        response_parameters: vec![parameters(size)],
        payload: Some(body(10)),
        ..StreamingOutputCallRequest::default()
    };
    // The server's head comes with its first response, so the first request must be sent before.
    sender.send(request(wanted[0])).await.unwrap();
    let mut replies = client.full_duplex_call(requests).await?.into_inner();
    for (turn, expected) in wanted.into_iter().enumerate() {
        let reply = replies.message().await?.unwrap();
        assert_eq!(size(reply.payload.as_ref()), usize::try_from(expected).unwrap());
        if let Some(next) = wanted.get(turn + 1) {
            sender.send(request(*next)).await.unwrap();
        }
    }
    drop(sender);
    assert!(replies.message().await?.is_none());
    let nothing = unfold((), |()| async { None::<(StreamingOutputCallRequest, ())> });
    assert!(client.full_duplex_call(nothing).await?.into_inner().message().await?.is_none());
    Ok(())
}

/// Both cancellations and the timeout.
async fn interrupted_cases(client: &TestServiceClient) -> Result<(), Status> {
    let (sender, receiver) = tokio::sync::mpsc::channel::<StreamingInputCallRequest>(1);
    let requests = unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    let call = tokio::time::timeout(Duration::from_millis(50), client.streaming_input_call(requests)).await;
    assert!(call.is_err(), "cancelled after it began");
    drop(sender);

    let one_then_wait = |size| {
        unfold(true, move |first| async move {
            if !first {
                std::future::pending::<()>().await;
            }
            let response_parameters = vec![parameters(size)];
            Some((StreamingOutputCallRequest { response_parameters, ..StreamingOutputCallRequest::default() }, false))
        })
    };
    let mut replies = client.full_duplex_call(one_then_wait(31_415)).await?.into_inner();
    assert!(replies.message().await?.is_some());
    drop(replies);

    let mut request = Request::new(one_then_wait(1));
    request.set_timeout(Duration::from_millis(50));
    let mut replies = client.full_duplex_call(request).await?.into_inner();
    let status = loop {
        match replies.message().await {
            Ok(message) => assert!(message.is_some()),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs grpc-go's interoperability server"]
async fn our_channel_is_content_with_grpc_go_server() {
    let address = free_address();
    let mut command = Command::new(tool("server"));
    command.arg(format!("--port={}", address.port()));
    let _server = Process::serving(command, address);
    let builder = Channel::builder(&format!("http://{address}")).unwrap().settings(Settings::default());
    let channel = builder.connect().await.unwrap();
    let client = TestServiceClient::new(channel.clone());
    unary_cases(&client).await.unwrap();
    streaming_cases(&client).await.unwrap();
    interrupted_cases(&client).await.unwrap();
    let unknown = UnimplementedServiceClient::new(channel);
    assert_eq!(unknown.unimplemented_call(Empty {}).await.unwrap_err().code(), Code::Unimplemented);
}
