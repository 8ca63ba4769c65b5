//! Busy ports: a default port is skipped with a log line, a configured one fails the start.

use std::{
    fs,
    net::TcpListener,
    time::{Duration, Instant},
};

use rpcgame::grpc::wire::{DoneRequest, rpc_game_client::RpcGameClient};
use tokio::sync::Mutex;

use super::bad_starts::one_line;
use crate::common::{process::Start, store::folder};

struct Beside {
    default: &'static str,
    key: &'static str,
    /// Log line for the busy port.
    without: &'static str,
    how: &'static str,
}

const TASKS: Beside =
    Beside { default: "127.0.0.1:8080", key: "tasks.listen", without: "tasks are not served", how: "--tasks-listen" };
const GAME: Beside = Beside {
    default: "127.0.0.1:29381",
    key: "rpcgame.listen",
    without: "the RPC game is served on the main port only",
    how: "--set rpcgame.listen=ADDRESS",
};
const LEAN: Beside = Beside {
    default: "127.0.0.1:29382",
    key: "rpcgame.lean_listen",
    without: "the lean protocol of the RPC game is not served",
    how: "--set rpcgame.lean_listen=ADDRESS",
};
const ALL: [Beside; 3] = [TASKS, GAME, LEAN];

/// A machine has the default ports only once.
static PORTS: Mutex<()> = Mutex::const_new(());

/// Occupies a default port. `None` if another test's server has it for a moment or another program for good, which does
/// as well.
fn occupy(beside: &Beside) -> Option<TcpListener> {
    let given_up = Instant::now() + Duration::from_secs(5);
    loop {
        match TcpListener::bind(beside.default) {
            Err(_) if Instant::now() < given_up => std::thread::yield_now(),
            bound => return bound.ok(),
        }
    }
}

impl Beside {
    fn is_warned(&self, log: &str) -> bool {
        let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let warned: Vec<String> = lines
            .filter(|line| line["level"] == "WARN")
            .filter_map(|line| Some(line["fields"]["message"].as_str()?.to_owned()))
            .filter(|message| message.starts_with(self.without))
            .collect();
        let words = format!(": another program listens on {}; choose another port with {}", self.default, self.how);
        assert!(warned.iter().all(|message| message.contains(&words)), "{warned:?}");
        warned.len() == 1
    }
}

#[tokio::test]
async fn busy_default_ports_are_told_and_the_rest_is_served() {
    let _alone = PORTS.lock().await;
    let _busy: Vec<_> = ALL.iter().map(occupy).collect();
    let folder = folder();
    let server = Start::default().on_default_ports().serve(folder.path());
    let log = server.log.text();
    for beside in ALL {
        assert!(beside.is_warned(&log), "{}: {log}", beside.key);
    }
    assert!(!log.contains("tasks are served") && !log.contains("has ports of its own"), "{log}");
    RpcGameClient::new(server.channel()).done(DoneRequest {}).await.expect("the game on the main port");
    server.stop();
}

#[test]
fn each_busy_default_port_is_given_up_alone() {
    let _alone = PORTS.blocking_lock();
    for busy in ALL {
        let _busy = occupy(&busy);
        let folder = folder();
        let others = ALL.into_iter().filter(|other| other.key != busy.key);
        let start = others
            .fold(Start::default().on_default_ports(), |start, other| start.set(&format!("{}=127.0.0.1:0", other.key)));
        let server = start.serve(folder.path());
        let log = server.log.text();
        for beside in ALL {
            assert_eq!(beside.is_warned(&log), beside.key == busy.key, "{}: {log}", beside.key);
        }
        assert_eq!(log.contains("tasks are served"), busy.key != TASKS.key, "{log}");
        assert!(log.contains("the RPC game has ports of its own"), "{log}");
        server.stop();
    }
}

#[test]
fn a_busy_port_that_was_named_stops_the_start_though_it_is_the_default() {
    let _alone = PORTS.blocking_lock();
    for busy in ALL {
        let _busy = occupy(&busy);
        let Beside { default, key, .. } = busy;
        let folder = folder();
        let start = || {
            let others = ALL.into_iter().filter(|other| other.key != key);
            others.fold(Start::default().on_default_ports(), |start, other| {
                start.set(&format!("{}=127.0.0.1:0", other.key))
            })
        };
        let (section, name) = key.split_once('.').expect("a section");
        let file = folder.path().join("named.toml");
        fs::write(&file, format!("[{section}]\n{name} = \"{default}\"\n")).expect("a file");
        let named = [
            start().set(&format!("{key}={default}")),
            start().variable(&format!("QUIRE_{}", key.replace('.', "_").to_uppercase()), default),
            start().flag("--config").flag("named.toml"),
        ];
        for start in named {
            let line = one_line(&mut start.command(folder.path()));
            let wanted = format!("cannot listen on {default}: another program does; end it or choose another port");
            assert!(line.starts_with(&wanted) && line.contains(busy.how), "{line}");
        }
        assert!(!folder.path().join("data").exists(), "nothing was made");
    }
}
