//! Null servers against judges by others (curl, h2load) and our own loads: answers, stalls and shutdown.

use std::io::{BufReader, ErrorKind, Read as _, Seek as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench::null::{Null, NullServer};
use clap::Parser;

#[derive(Parser)]
struct Flags {
    #[command(subcommand)]
    server: NullServer,
}

fn server(arguments: &[&str]) -> NullServer {
    Flags::try_parse_from(std::iter::once(&"null").chain(arguments)).expect("flags").server
}

fn start(arguments: &[&str]) -> Null {
    Null::start(server(arguments)).expect("a server")
}

fn refused(arguments: &[&str]) -> String {
    format!("{:#}", Null::start(server(arguments)).expect_err("a refusal"))
}

fn connect(null: &Null) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(null.address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
    BufReader::new(stream)
}

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-sS", "--max-time", "20"]).args(arguments).output().expect("curl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn lines_are_answered_in_one_piece_or_many() {
    let null = start(&["tcp", "--answer", "OK"]);
    let mut stream = connect(&null);
    let mut answer = [0; 6];
    for part in [&b"a"[..], b"\nb\n"] {
        stream.get_mut().write_all(part).unwrap();
    }
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"OK\nOK\n");
}

#[test]
fn large_answers_and_many_lines_are_answered_exactly() {
    for bytes in [1, 7, 70_000] {
        let null = start(&["tcp", "--answer-bytes", &bytes.to_string()]);
        let mut stream = connect(&null);
        stream.get_mut().write_all(&b"x\n".repeat(300)).unwrap();
        stream.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 300 * bytes);
    }
}

#[test]
fn a_delay_holds_back_each_answer_and_no_other() {
    let null = start(&["tcp", "--answer", "OK", "--delay", "100ms"]);
    let began = Instant::now();
    let mut stream = connect(&null);
    stream.get_mut().write_all(&b"x\n".repeat(1000)).unwrap();
    stream.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 3000);
    // One after another they would take longer than the connection waits.
    assert!(began.elapsed() >= Duration::from_millis(100));
}

#[test]
#[ignore = "needs curl; `make judges` runs it"]
fn curl_is_answered_by_both_versions_of_http() {
    let null = start(&["http", "--answer-bytes", "5"]);
    let url = format!("http://{}/any/path?q", null.address);
    let format = "%{http_version} %{http_code} %{size_download}";
    for (version, wanted) in [("--http1.1", "1.1 200 5"), ("--http2-prior-knowledge", "2 200 5")] {
        let seen = curl(&[version, "-o", "/dev/null", "-w", format, "--data", "body", &url]);
        assert_eq!(seen, wanted);
    }
}

#[test]
#[ignore = "needs h2load; `make judges` runs it"]
fn h2load_sees_every_request_succeed() {
    let null = start(&["http"]);
    let url = format!("http://{}/", null.address);
    for version in ["--h1", "--no-tls-proto=h2c"] {
        let arguments = [version, "-n", "2000", "-c", "4", "-m", "8", "-t", "1", &url];
        let output = Command::new("h2load").args(arguments).output().expect("h2load");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("2000 done, 2000 succeeded, 0 failed"), "{version}: {said}");
    }
}

/// Calls a method that no service has with this many empty messages; returns head and body of the answer.
fn call(null: &Null, messages: usize) -> (String, Vec<u8>) {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&[0; 5].repeat(messages)).expect("a write");
    file.rewind().expect("a rewind");
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--http2-prior-knowledge", "-H", "content-type: application/grpc"])
        .args(["-H", "te: trailers", "--data-binary", "@-", "-D", "-"])
        .arg(format!("http://{}/no.such.Service/AnyMethod", null.address))
        .stdin(file)
        .output()
        .expect("curl");
    let all = String::from_utf8_lossy(&output.stdout);
    assert!(all.starts_with("HTTP/2 200") && all.contains("grpc-status: 0"), "{all}");
    let body = output.stdout.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    (String::from_utf8_lossy(&output.stdout[..body]).into_owned(), output.stdout[body..].to_vec())
}

#[test]
#[ignore = "needs curl; `make judges` runs it"]
fn any_grpc_method_is_answered_with_a_message_of_the_size_asked_for() {
    for (arguments, bytes) in [
        (&["grpc"][..], 0_u32),
        (&["grpc", "--answer-bytes", "1000"], 1000),
        (&["grpc", "--answer-bytes", "9", "--delay", "1ms"], 9),
        (&["grpc", "--answer-bytes", "9", "--threads", "2"], 9),
    ] {
        let null = start(arguments);
        let (head, body) = call(&null, 1);
        assert!(head.contains("application/grpc"), "{head}");
        assert_eq!(body[..5], [&[0][..], &bytes.to_be_bytes()].concat(), "{arguments:?}");
    }
}

#[test]
#[ignore = "needs curl; `make judges` runs it"]
fn each_message_of_a_grpc_stream_is_answered() {
    let null = start(&["grpc", "--streams", "--answer-bytes", "4"]);
    let (_, body) = call(&null, 3);
    let one = &body[..9];
    assert_eq!(one[..5], [0, 0, 0, 0, 4]);
    assert_eq!(body[..27], one.repeat(3));
}

#[test]
fn stalls_begin_when_they_were_said_to_and_hold_up_every_connection() {
    let unix_now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let begins = unix_now + Duration::from_millis(300);
    let first = begins.as_millis().to_string();
    let null = start(&["tcp", "--stall", "400ms", "--every", "1h", "--stall-from", &first]);
    assert_eq!(u128::from(null.first_stall_unix_ms.unwrap()), begins.as_millis());
    // Past the stall's end, on whichever machine.
    let ends = begins + Duration::from_millis(500);
    let longest = |mut stream: BufReader<TcpStream>| {
        std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while SystemTime::now().duration_since(UNIX_EPOCH).unwrap() < ends {
                let sent = Instant::now();
                stream.get_mut().write_all(b"x\n").unwrap();
                stream.read_exact(&mut [0]).unwrap();
                longest = longest.max(sent.elapsed());
            }
            longest
        })
    };
    for seen in [longest(connect(&null)), longest(connect(&null))] {
        // Most of the stall: on each connection there was a request when it began, or soon after.
        let seen = seen.join().unwrap();
        assert!(seen > Duration::from_millis(100), "{seen:?}");
    }
}

#[test]
fn a_dropped_server_is_gone() {
    for arguments in [&["tcp"][..], &["http"], &["grpc", "--threads", "3"]] {
        let null = start(arguments);
        let mut stream = connect(&null);
        let address = null.address;
        drop(null);
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn options_out_of_range_are_refused_with_what_would_be_right() {
    let cases: [(&[&str], &str); 8] = [
        (&["grpc", "--answer-bytes", "3"], "--answer-bytes 3: it must be 0, or from 4 to 4194304"),
        (&["grpc", "--answer-bytes", "99999999999999"], "0, or from 4 to 4194304"),
        (&["http", "--answer-bytes", "99999999999999"], "it must be at most 1073741824"),
        (&["tcp", "--answer-bytes", "0"], "--answer-bytes 0: it must be from 1 to 1073741824"),
        (&["tcp", "--threads", "0"], "--threads 0: it must be from 1 to 256"),
        (&["tcp", "--stall", "2s", "--every", "2s"], "it must be above 0 and shorter than --every 2s"),
        (&["tcp", "--stall", "2s", "--every", "2days"], "it must be at most 86400s"),
        (&["tcp", "--delay", "2h"], "--delay 7200s: it must be at most 3600s"),
    ];
    for (arguments, wanted) in cases {
        let message = refused(arguments);
        assert!(message.contains(wanted), "{arguments:?}: {message}");
    }
    let taken = start(&["tcp"]);
    let message = refused(&["tcp", "--listen", &taken.address.to_string()]);
    assert!(message.starts_with(&format!("cannot listen on {}: Address already in use", taken.address)), "{message}");
}
