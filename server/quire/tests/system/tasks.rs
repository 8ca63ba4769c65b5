//! The task server of the binary, over sockets.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::Stdio,
};

use super::{
    bad_starts::one_line,
    idle::{MANY_CONNECTIONS, files_max, resident_kibibytes},
};
use crate::common::{
    PATIENCE, http,
    process::{Server, Start, quire, run},
    store::folder,
    wait_for,
};

const CONNECTIONS: usize = 2_000;

/// Memory per idle connection, including allocator overhead and its place in the list of connections.
const KIBIBYTES_EACH_MAX: u64 = 5;

/// Memory per connection with requests in flight.
const KIBIBYTES_ASKING_MAX: u64 = 8;

/// The address of the task server.
pub(super) fn address(server: &Server) -> SocketAddr {
    let log = server.log.until("tasks are served");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut told = lines.filter(|line| line["fields"]["message"] == "tasks are served");
    let told = told.next().expect("a line of the log");
    told["fields"]["address"].as_str().and_then(|address| address.parse().ok()).expect("an address")
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(address(server)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Sends, half-closes, and reads to the end.
fn ask(server: &Server, request: &str) -> Vec<u8> {
    let mut stream = connect(server);
    stream.write_all(request.as_bytes()).expect("room");
    stream.shutdown(Shutdown::Write).expect("a half-closed connection");
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).expect("replies");
    replies
}

#[test]
fn tasks_are_answered_by_default_in_order_and_counted() {
    let folder = folder();
    let server = Server::start(folder.path());
    assert_eq!(ask(&server, "1:42\r\n 0:41 \n0:any:68\nHELLO 2\n1:255"), b"\x99\x89\xb4OK 188\n");
    let computed = |kind| {
        let series = format!("quire_tasks_requests_total{{type=\"{kind}\",outcome=\"computed\"}}");
        http::metric(server.address, &series)
    };
    assert_eq!((computed("cpu"), computed("io")), (2, 2));
}

#[test]
fn a_bad_line_is_logged_and_counted_and_earlier_replies_arrive() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut stream = connect(&server);
    // More than one read follows the bad line, and must not cost the replies before it.
    stream.write_all(&[b"1:42\n0:41\nnonsense\n", b"0:1\n".repeat(10_000).as_slice()].concat()).expect("room");
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).expect("replies, and no reset");
    assert_eq!(replies, b"\x99\x89");
    drop(stream);
    let log = server.log.until("bad line");
    assert!(log.contains("the type is 'nonsense'; it must be 0 (CPU) or 1 (I/O)"), "{log}");
    assert_eq!(http::metric(server.address, "quire_tasks_bad_lines_total{reason=\"type\"}"), 1);
}

#[test]
fn what_is_in_flight_is_answered_before_the_end() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let (mut stream, idle) = (connect(&server), connect(&server));
    stream.write_all(b"1:42\n").expect("room");
    wait_for("a task in flight", || (http::metric(server.address, "quire_tasks_in_flight") > 0).then_some(()));
    server.signal("TERM");
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).expect("replies");
    assert_eq!(replies, b"\x99");
    assert!(server.wait().success());
    drop(idle);
}

#[test]
fn chains_of_the_published_experiment_come_to_its_sum() {
    let folder = folder();
    let server = Server::start(folder.path());
    let address = address(&server).to_string();
    let done = run(folder.path(), &["tasks", &address, "--clients", "10", "--requests", "5", "--seed", "1"], "");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.starts_with("sum "), "{done:?}");
}

#[test]
fn a_run_that_takes_long_says_how_far_it_is() {
    let folder = folder();
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let mut command = quire(folder.path());
    command.args(["tasks", &address, "--clients", "2", "--requests", "3"]).stderr(Stdio::piped());
    let mut asking = command.spawn().expect("quire starts");
    kit::Written::bytes(asking.stderr.take().expect("a pipe")).until("0 of 6 replies after 5 s\n");
    asking.kill().expect("it still asks");
    asking.wait().expect("an end");
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_made() {
    let folder = folder();
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("an address").to_string();
    let line = one_line(&mut Start::default().flag(&format!("--tasks-listen={taken}")).command(folder.path()));
    let wanted = format!("cannot listen on {taken}: another program does; end it or choose another port with");
    assert!(line.starts_with(&wanted) && line.contains("--tasks-listen"), "{line}");
    assert!(!folder.path().join("data").exists(), "nothing was made");
}

#[test]
fn without_the_service_its_port_does_not_matter() {
    let folder = folder();
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("an address").to_string();
    let start = Start::default().flag(&format!("--tasks-listen={taken}")).set("tasks.enabled=false");
    let server = start.serve(folder.path());
    assert!(!server.log.text().contains("tasks are served"));
    assert!(!http::get(server.address, "/metrics").body.contains("quire_tasks"));
}

#[test]
fn settings_that_cannot_be_are_named() {
    let table = [
        ("tasks.listen=here", "tasks.listen is 'here', from --set; it must be IP:PORT, as 127.0.0.1:8080"),
        ("tasks.cpu_tasks=0", "tasks.cpu_tasks is '0', from --set; it must be a whole number from 1 to 1024"),
        ("tasks.idle_seconds=-1", "tasks.idle_seconds is '-1', from --set; it must be a time above 0"),
        ("tasks.concurrency=some", "tasks.concurrency"),
        ("tasks.cache=perhaps", "tasks.cache"),
    ];
    for (setting, said) in table {
        let folder = folder();
        // The harness's own flag would override the setting.
        let mut command = quire(folder.path());
        let line = one_line(command.args(["serve", "--listen", "127.0.0.1:0", "--set", setting]));
        assert!(line.contains(said), "{line}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing was made");
    }
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once_and_counted() {
    let folder = folder();
    let server = Start::default().set("tasks.connections=2").serve(folder.path());
    let mut open: Vec<TcpStream> = (0..2).map(|_| connect(&server)).collect();
    let connections = || http::metric(server.address, "quire_tasks_connections");
    wait_for("both connections", || (connections() == 2).then_some(()));
    assert_eq!(connect(&server).read(&mut [0]).expect("an end"), 0);
    assert_eq!(http::metric(server.address, "quire_tasks_refused_total"), 1);
    open.pop();
    wait_for("room", || (connections() == 1).then_some(()));
    assert_eq!(ask(&server, "0:41\n"), [137]);
}

#[test]
fn cpu_tasks_never_exceed_their_number_and_have_threads_of_their_own() {
    let folder = folder();
    let server = Start::default().set("tasks.cpu_tasks=3").serve(folder.path());
    let lines = |number: u64| (0..64).fold(String::new(), |lines, seed| lines + &format!("0:{}\n", 64 * number + seed));
    let mut streams: Vec<TcpStream> = (0..4).map(|_| connect(&server)).collect();
    for (stream, number) in streams.iter_mut().zip(0..) {
        stream.write_all(lines(number).as_bytes()).expect("room");
    }
    for stream in &mut streams {
        stream.read_exact(&mut [0; 64]).expect("replies");
    }
    let peak = http::metric(server.address, "quire_tasks_cpu_running_peak");
    assert!((1..=3).contains(&peak), "{peak} at once");
    assert_eq!(http::metric(server.address, "quire_tasks_cpu_running"), 0);
    let threads = fs::read_dir(format!("/proc/{}/task", server.id())).expect("a process");
    let names = threads.map(|thread| fs::read_to_string(thread.expect("a thread").path().join("comm")));
    let names: Vec<String> = names.filter_map(Result::ok).collect();
    let workers = names.iter().filter(|name| name.trim() == "tasks-cpu").count();
    assert!((1..=3).contains(&workers), "{names:?}");
}

#[test]
fn thousands_of_connections_that_all_ask_hold_a_bounded_number_of_requests() {
    if files_max() < CONNECTIONS + 2000 {
        return eprintln!("left out: {} open files are allowed, too few for {CONNECTIONS} connections", files_max());
    }
    let _others_wait = MANY_CONNECTIONS.blocking_lock();
    let folder = folder();
    let waiting = 1000;
    let server = Start::default().set(&format!("tasks.waiting={waiting}")).serve(folder.path());
    let before = resident_kibibytes(server.id());
    // The same on all connections, so that all results are cached after the two seconds of the longest.
    let asked = (0..64).fold(String::new(), |lines, seed| lines + &format!("1:{seed}\n"));
    let results: Vec<u8> = (0..64).map(|seed| tasks::task::Io::new(seed).result).collect();
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    for stream in &mut streams {
        stream.write_all(asked.as_bytes()).expect("room");
    }
    let in_flight = http::metric(server.address, "quire_tasks_in_flight");
    let open = u64::try_from(CONNECTIONS).expect("fits");
    assert!(in_flight <= open + waiting, "{in_flight} requests wait");
    let grown = resident_kibibytes(server.id()).saturating_sub(before);
    eprintln!("{CONNECTIONS} connections of 64 requests, {in_flight} in flight: {grown} KiB");
    assert!(grown < open * KIBIBYTES_ASKING_MAX, "{grown} KiB for {CONNECTIONS} connections that ask");
    for stream in &mut streams {
        let mut replies = [0; 64];
        stream.read_exact(&mut replies).expect("replies");
        assert_eq!(replies[..], results);
    }
}

#[test]
fn thousands_of_idle_connections_cost_little_and_disturb_no_one() {
    if files_max() < CONNECTIONS + 2000 {
        return eprintln!("left out: {} open files are allowed, too few for {CONNECTIONS} connections", files_max());
    }
    let _others_wait = MANY_CONNECTIONS.blocking_lock();
    let folder = folder();
    let server = Server::start(folder.path());
    assert_eq!(ask(&server, "0:41\n"), [137]);
    let before = resident_kibibytes(server.id());
    let mut idle: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    for stream in &mut idle {
        stream.write_all(b"0:41\n0:").expect("room");
    }
    for stream in &mut idle {
        let mut reply = [0];
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(reply, [137]);
    }
    assert_eq!(ask(&server, "0:68\n"), [180]);
    let grown = resident_kibibytes(server.id()).saturating_sub(before);
    eprintln!("{CONNECTIONS} idle connections: {grown} KiB");
    let open = u64::try_from(CONNECTIONS).expect("fits");
    assert!(grown < open * KIBIBYTES_EACH_MAX, "{grown} KiB for {CONNECTIONS} idle connections");
    drop(idle);
    wait_for("their ends", || (http::metric(server.address, "quire_tasks_connections") == 0).then_some(()));
}
