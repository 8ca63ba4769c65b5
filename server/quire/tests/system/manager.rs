//! The server under a service manager, whose part the tests play: readiness, reloads, the watchdog, passed sockets.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr as UnixAddr, UnixDatagram},
    },
    path::Path,
    process::Stdio,
};

use rustix::time::{ClockId, clock_gettime};

use crate::common::{http, process::Start, store::folder};

/// The manager's end.
struct Manager(UnixDatagram);

impl Manager {
    fn at(folder: &Path) -> Self {
        Self::of(UnixDatagram::bind(folder.join("notify")).expect("a socket"))
    }

    fn of(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(kit::PATIENCE)).expect("a time");
        Self(socket)
    }

    fn message(&self) -> String {
        let mut text = [0; 1024];
        let bytes = self.0.recv(&mut text).expect("a message");
        String::from_utf8_lossy(&text[..bytes]).into_owned()
    }

    /// The next message with this first line; those before it must be signs of life.
    fn until(&self, first: &str) -> String {
        loop {
            let message = self.message();
            if message.lines().next() == Some(first) {
                return message;
            }
            assert_eq!(message, "WATCHDOG=1", "before {first}");
        }
    }
}

fn micros() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

#[test]
fn the_manager_learns_readiness_reloads_and_the_stop() {
    let folder = folder();
    let manager = Manager::at(folder.path());
    let mut server = Start::default().variable("NOTIFY_SOCKET", "notify").serve(folder.path());
    assert_eq!(manager.message(), "STATUS=opening the services");
    assert_eq!(manager.message(), format!("READY=1\nSTATUS=serving at {}", server.address));
    let before = micros();
    server.signal("HUP");
    let reloading = manager.message();
    let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|rest| rest.split_once('\n'));
    let (time, status) = time.expect("a time");
    assert!((before..=micros()).contains(&time.parse().expect("a number")), "{reloading}");
    assert_eq!(status, "STATUS=reading files again");
    assert_eq!(manager.message(), format!("READY=1\nSTATUS=serving at {}", server.address));
    server.signal("TERM");
    assert_eq!(manager.message(), "STOPPING=1\nSTATUS=stopping: SIGTERM");
    assert!(server.wait().success());
}

#[test]
fn ports_are_open_when_the_server_is_ready() {
    let folder = folder();
    let manager = Manager::at(folder.path());
    let mut child = Start::default().variable("NOTIFY_SOCKET", "notify").command(folder.path());
    let mut child = child.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    assert_eq!(manager.message(), "STATUS=opening the services");
    let ready = manager.message();
    let address = ready.strip_prefix("READY=1\nSTATUS=serving at ").and_then(|address| address.parse().ok());
    let page = http::get(address.expect("an address"), "/healthz");
    kit::signal(child.id(), "TERM");
    assert_eq!(page.status, 200, "{page:?}");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_watchdog_gets_signs_of_life_at_an_abstract_address() {
    let folder = folder();
    let name = format!("quire-test-{}", std::process::id());
    let address = UnixAddr::from_abstract_name(&name).expect("a name");
    let manager = Manager::of(UnixDatagram::bind_addr(&address).expect("a socket"));
    let start = Start::default().variable("NOTIFY_SOCKET", &format!("@{name}")).variable("WATCHDOG_USEC", "20000");
    let mut server = start.serve(folder.path());
    manager.until("STATUS=opening the services");
    manager.until("READY=1");
    for _ in 0..3 {
        assert_eq!(manager.message(), "WATCHDOG=1");
    }
    // A manager's queue is short, and nothing reads it while the test waits.
    server.signal("TERM");
    manager.until("STOPPING=1");
    assert!(server.wait().success());
}

#[test]
fn the_watchdog_of_another_process_and_a_manager_that_is_gone_are_no_concern() {
    let folder = folder();
    let manager = Manager::at(folder.path());
    let start = Start::default().variable("NOTIFY_SOCKET", "notify").variable("WATCHDOG_USEC", "1000");
    let server = start.clone().variable("WATCHDOG_PID", "1").serve(folder.path());
    let expect = |first: &str| assert_eq!(manager.message().lines().next(), Some(first));
    ["STATUS=opening the services", "READY=1"].into_iter().for_each(expect);
    server.signal("HUP");
    ["RELOADING=1", "READY=1"].into_iter().for_each(expect);
    server.stop();
    expect("STOPPING=1");
    drop(manager);
    let server = start.serve(folder.path());
    server.log.until("the service manager cannot be reached");
    server.stop();
}

/// Passed sockets.
#[cfg(feature = "activation")]
mod activation {
    use std::{
        net::{TcpListener, TcpStream},
        os::fd::OwnedFd,
        process::Command,
    };

    use super::*;

    /// Moves standard input and output to the places where a manager passes sockets.
    const PASS: &str = "exec 3<&0 4<&1 </dev/null >/dev/null; export LISTEN_PID=$$; exec \"$@\"";

    struct Socket(TcpListener, String);

    fn socket() -> Socket {
        socket_of("127.0.0.1:0")
    }

    fn socket_of(address: &str) -> Socket {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        Socket(listener, address)
    }

    /// A server that gets two sockets.
    fn passing(start: Start, folder: &Path, [first, second]: [&Socket; 2]) -> Command {
        let start = start.inside(PASS).variable("LISTEN_FDS", "2");
        let mut command = start.command(folder);
        let pass = |Socket(socket, _): &Socket| Stdio::from(OwnedFd::from(socket.try_clone().expect("a socket")));
        command.stdin(pass(first)).stdout(pass(second)).stderr(Stdio::null());
        command
    }

    /// Two ports, given by flags, come from the manager; the main port's page names both.
    fn serves(flags: [&str; 2]) {
        let folder = folder();
        let manager = Manager::at(folder.path());
        let sockets = [socket(), socket()];
        let start = Start::default().variable("NOTIFY_SOCKET", "notify");
        let start = flags
            .iter()
            .zip(&sockets)
            .fold(start, |start, (flag, Socket(_, address))| start.flag(&format!("{flag}={address}")));
        let mut child = passing(start, folder.path(), sockets.each_ref()).spawn().expect("it starts");
        manager.until("STATUS=opening the services");
        let ready = manager.until("READY=1");
        let main = ready.rsplit(' ').next().expect("an address");
        let page = http::get(main.parse().expect("an address"), "/").body;
        kit::signal(child.id(), "TERM");
        assert!(child.wait().expect("it ends").success());
        for Socket(_, address) in &sockets {
            assert!(main == address || page.contains(address), "{address}: {page}");
            // The manager still listens, so that callers wait for the next server.
            assert!(TcpStream::connect(address).is_ok());
        }
    }

    #[test]
    fn the_main_and_the_lean_port_may_be_passed_in_any_order() {
        serves(["--set=rpcgame.lean_listen", "--listen"]);
    }

    #[test]
    fn the_ports_of_tasks_and_of_the_game_may_be_passed() {
        serves(["--tasks-listen", "--set=rpcgame.listen"]);
    }

    #[test]
    fn a_caller_that_came_before_the_server_is_answered() {
        let folder = folder();
        let manager = Manager::at(folder.path());
        let sockets = [socket(), socket()];
        let address = sockets[0].1.parse().expect("an address");
        let caller = std::thread::spawn(move || http::get(address, "/healthz"));
        let start = Start::default().variable("NOTIFY_SOCKET", "notify").flag(&format!("--listen={address}"));
        let start = start.flag(&format!("--tasks-listen={}", sockets[1].1));
        let mut child = passing(start, folder.path(), sockets.each_ref()).spawn().expect("it starts");
        assert_eq!(caller.join().expect("an answer").status, 200);
        kit::signal(child.id(), "TERM");
        assert!(child.wait().expect("it ends").success());
        manager.until("STATUS=opening the services");
    }

    #[test]
    fn a_socket_at_an_address_that_no_port_has_stops_the_start() {
        let sockets = [socket(), socket_of("0.0.0.0:0")];
        let [other, one] = sockets.each_ref().map(|Socket(_, address)| address);
        // The first cannot be bound, because the passed one has its port.
        for listen in [&one.replace("0.0.0.0", "127.0.0.1"), "127.0.0.1:0"] {
            let folder = folder();
            let start = Start::default().flag(&format!("--listen={listen}")).flag(&format!("--tasks-listen={other}"));
            let mut command = passing(start, folder.path(), sockets.each_ref());
            let ended = command.stderr(Stdio::piped()).output().expect("quire runs");
            assert!(!ended.status.success());
            let log = String::from_utf8_lossy(&ended.stderr);
            let wanted =
                format!("the service manager passed a socket at {one}, but the server is set to {listen} (--listen)");
            assert!(log.contains(&wanted), "{log}");
        }
    }
}
