//! The binary in a separate process: started, queried, signalled, and ended with the test.

use std::{
    io::Write as _,
    ops::{Deref, DerefMut},
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};

use bookstore::grpc::wire::{admin_client::AdminClient, book_store_client::BookStoreClient};
use kit::wait_for;
use quire_rpc::client::{Channel, Settings};

use super::lost_pages::LostPages;

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
        command.args(["serve", "--data", "data"]);
        if !self.flags.iter().any(|flag| flag.starts_with("--log-format")) {
            command.args(["--log-format", "json"]);
        }
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
        let server = kit::Server::start_with_input("the server", &mut self.command(folder));
        Server(server.unwrap_or_else(|error| panic!("{error:#}")))
    }
}

/// A running server, killed on drop.
#[derive(Debug)]
pub(crate) struct Server(kit::Server);

impl Server {
    /// Starts it with default settings.
    pub(crate) fn start(folder: &Path) -> Self {
        Start::default().serve(folder)
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
        self.command("client", arguments, input)
    }

    /// Runs an operator's command against it.
    pub(crate) fn operate(&self, arguments: &[&str], input: &str) -> Output {
        self.command("admin", arguments, input)
    }

    fn command(&self, program: &str, arguments: &[&str], input: &str) -> Output {
        let address = self.address.to_string();
        let (flags, words) = arguments.split_at(arguments.iter().take_while(|word| word.starts_with("--")).count());
        run(&std::env::temp_dir(), &[&[program], flags, &[&address], words].concat(), input)
    }

    /// Types a command into its console and returns the output up to `last`.
    pub(crate) fn console(&mut self, line: &str, last: &str) -> String {
        let before = self.output.text().len();
        self.type_line(line);
        wait_for(&format!("'{last}' after '{line}'"), || {
            let written = self.output.text()[before..].to_owned();
            (written.contains(last) && written.ends_with('\n')).then_some(written)
        })
    }

    /// Stops it normally.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.log.text());
    }
}

impl Deref for Server {
    type Target = kit::Server;

    fn deref(&self) -> &kit::Server {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut kit::Server {
        &mut self.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_running() {
            self.kill();
        }
        if thread::panicking() {
            eprintln!("the log of the server at {}:\n{}", self.address, self.log.text());
        }
    }
}
