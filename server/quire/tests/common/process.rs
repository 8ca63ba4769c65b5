//! The binary in a separate process: started, queried, signalled, and ended with the test.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use bookstore::grpc::wire::{admin_client::AdminClient, book_store_client::BookStoreClient};
use quire_rpc::client::{Channel, Settings};

use super::{lost_pages::LostPages, wait_for};

/// The program under test.
const QUIRE: &str = env!("CARGO_BIN_EXE_quire");

/// The program, isolated from this machine's settings and files.
pub(crate) fn quire(folder: &Path) -> Command {
    clean(Command::new(QUIRE), folder)
}

fn clean(mut command: Command, folder: &Path) -> Command {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("QUIRE_")) {
        command.env_remove(name);
    }
    command.current_dir(folder);
    command
}

/// Runs a command to its end.
pub(crate) fn run(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = quire(folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("quire starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("quire reads its input");
    child.wait_with_output().expect("quire ends")
}

/// Sends a signal to a process that a test started.
pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &process.to_string()]).status().expect("kill runs");
    assert!(sent.success(), "no process {process} to signal");
}

/// A process's output so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(Arc<Mutex<String>>);

impl Written {
    fn collect(source: impl Read + Send + 'static) -> Self {
        let written = Self::default();
        let into = written.clone();
        thread::spawn(move || {
            let (mut source, mut line) = (BufReader::new(source), Vec::new());
            while source.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                into.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        written
    }

    /// Byte by byte, for a screen, where a prompt has no line end.
    pub(crate) fn bytes(mut source: impl Read + Send + 'static) -> Self {
        let written = Self::default();
        let into = written.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = source.read(&mut bytes) {
                into.0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        written
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line that holds `text` and returns all lines up to it.
    pub(crate) fn until(&self, text: &str) -> String {
        wait_for(&format!("'{text}' in what the process writes"), || {
            let written = self.text();
            written.contains(text).then_some(written)
        })
    }
}

/// Start options of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    settings: Vec<String>,
    variables: Vec<(String, String)>,
    flags: Vec<String>,
    /// A shell script that runs the program as `"$@"`.
    wrapper: Option<String>,
    has_default_ports: bool,
}

impl Start {
    pub(crate) fn set(mut self, assignment: &str) -> Self {
        self.settings.push(assignment.to_owned());
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it on a disk that can lose pages.
    pub(crate) fn on(self, disk: &LostPages) -> Self {
        disk.variables().iter().fold(self, |start, (name, value)| start.variable(name, value))
    }

    pub(crate) fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    pub(crate) fn inside(mut self, script: &str) -> Self {
        self.wrapper = Some(script.to_owned());
        self
    }

    /// Sets no port but the main one.
    pub(crate) fn on_default_ports(mut self) -> Self {
        self.has_default_ports = true;
        self
    }

    /// The command line of a server for `folder`; its store is `folder/data`.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        let mut command = match &self.wrapper {
            None => quire(folder),
            Some(script) => {
                let mut shell = clean(Command::new("sh"), folder);
                shell.args(["-c", script, "sh", QUIRE]);
                shell
            }
        };
        command.args(["serve", "--data", "data", "--log-format", "json"]);
        if !self.flags.iter().any(|flag| flag.starts_with("--listen")) {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        // Many servers run at once in tests; a test's own later settings may still give them colliding ports.
        if !self.has_default_ports {
            if !self.flags.iter().any(|flag| flag.starts_with("--tasks-listen")) {
                command.args(["--tasks-listen", "127.0.0.1:0"]);
            }
            command.args(["--set", "rpcgame.listen=127.0.0.1:0", "--set", "rpcgame.lean_listen=127.0.0.1:0"]);
        }
        command.args(&self.flags);
        command.args(self.settings.iter().flat_map(|assignment| ["--set", assignment]));
        command.envs(self.variables.iter().cloned());
        command
    }

    /// Starts it and waits until it listens.
    pub(crate) fn serve(&self, folder: &Path) -> Server {
        let mut command = self.command(folder);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let output = Written::collect(child.stdout.take().expect("a pipe"));
        let log = Written::collect(child.stderr.take().expect("a pipe"));
        let address = wait_for("a server that listens", || {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("the server ended at once, {status}: {}", log.text());
            }
            listening(&log.text())
        });
        Server { child, address, output, log }
    }
}

/// The address in the `listening` log line.
fn listening(log: &str) -> Option<SocketAddr> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut found = lines.filter(|line| line["fields"]["message"] == "listening");
    found.next()?["fields"]["address"].as_str()?.parse().ok()
}

/// A running server, killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) output: Written,
    pub(crate) log: Written,
}

impl Server {
    /// Starts it with default settings.
    pub(crate) fn start(folder: &Path) -> Self {
        Start::default().serve(folder)
    }

    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// A new connection.
    pub(crate) fn channel(&self) -> Channel {
        let settings = Settings { message_bytes_max: 64 << 20, ..Settings::default() };
        let channel = Channel::builder(&format!("http://{}", self.address)).expect("an address");
        channel.settings(settings).connect_lazy().expect("a channel")
    }

    pub(crate) fn shop(&self) -> BookStoreClient {
        BookStoreClient::new(self.channel())
    }

    pub(crate) fn admin(&self) -> AdminClient {
        AdminClient::new(self.channel())
    }

    /// Runs a command of the client against it.
    pub(crate) fn client(&self, arguments: &[&str], input: &str) -> Output {
        let address = self.address.to_string();
        let (flags, words) = arguments.split_at(arguments.iter().take_while(|word| word.starts_with("--")).count());
        run(&std::env::temp_dir(), &[&["client"], flags, &[&address], words].concat(), input)
    }

    /// Types into its console.
    pub(crate) fn type_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("the console's input is open");
        writeln!(input, "{line}").expect("the console reads");
    }

    /// Types a command and returns the output up to `last`.
    pub(crate) fn console(&mut self, line: &str, last: &str) -> String {
        let before = self.output.text().len();
        self.type_line(line);
        wait_for(&format!("'{last}' after '{line}'"), || {
            let written = self.output.text()[before..].to_owned();
            (written.contains(last) && written.ends_with('\n')).then_some(written)
        })
    }

    /// Ends the console's input.
    pub(crate) fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Sends SIGSTOP and waits until every thread has stopped: until then one may still finish its work.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        let runs = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat"))).unwrap_or_default();
            // The state follows the name in parentheses. An ended thread has none.
            stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('T'))
        };
        while std::fs::read_dir(&tasks).expect("the server is there").any(runs) {
            thread::yield_now();
        }
    }

    /// Sends SIGKILL: it cannot do anything more.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server ends");
    }

    /// True while it runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("the server can be asked").is_none()
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        wait_for("the server's end", || self.child.try_wait().expect("the server can be asked"))
    }

    /// Stops it normally.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        let status = self.ended();
        assert!(status.success(), "{status}: {}", self.log.text());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the log of the server at {}:\n{}", self.address, self.log.text());
        }
    }
}
