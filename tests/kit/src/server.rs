//! A server in a process of its own: started, awaited, signalled, measured and ended.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

/// Time limit for a server to listen, and to end.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Interval of checks.
const GLANCE: Duration = Duration::from_millis(2);

/// Sends a signal to a process, by the signal's name without `SIG`.
pub fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &process.to_string()]).status();
    assert!(sent.is_ok_and(|sent| sent.success()), "no process {process} to signal");
}

/// A recently free address of this machine, for programs that do not print the one they choose.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?)
}

/// A process's output so far.
#[derive(Clone, Debug, Default)]
pub struct Written(Arc<Mutex<String>>);

impl Written {
    /// Reads to the end, because a full pipe would block the process; incomplete lines are held back.
    fn lines(source: impl Read + Send + 'static) -> (Self, JoinHandle<()>) {
        let written = Self::default();
        let into = written.clone();
        let reader = thread::spawn(move || {
            let (mut source, mut line) = (BufReader::new(source), Vec::new());
            while source.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                into.push(&line);
                line.clear();
            }
        });
        (written, reader)
    }

    /// Reads byte by byte, for a screen, where a prompt has no line end.
    pub fn bytes(mut source: impl Read + Send + 'static) -> Self {
        let written = Self::default();
        let into = written.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = source.read(&mut bytes) {
                into.push(&bytes[..read]);
            }
        });
        written
    }

    fn push(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(bytes));
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line that holds `text` and returns all lines up to it.
    pub fn until(&self, text: &str) -> String {
        crate::wait_for(&format!("'{text}' in what the process writes"), || {
            let written = self.text();
            written.contains(text).then_some(written)
        })
    }
}

/// A running server, ended on drop.
#[derive(Debug)]
pub struct Server {
    name: String,
    child: Child,
    /// Its listening address.
    pub address: SocketAddr,
    /// Its standard output.
    pub output: Written,
    /// Its standard error.
    pub log: Written,
    readers: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts a program without input and waits until it writes `listening` with its address.
    pub fn start(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        Self::spawn(name, command.stdin(Stdio::null()))?.listen()
    }

    /// As [`Self::start`], with input from [`Self::type_line`].
    pub fn start_with_input(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        Self::spawn(name, command.stdin(Stdio::piped()))?.listen()
    }

    /// Starts a program without input and waits until it listens at a given address.
    pub fn start_at(name: &str, command: &mut Command, address: SocketAddr) -> anyhow::Result<Self> {
        let mut server = Self::spawn(name, command.stdin(Stdio::null()))?;
        server.address = address;
        server.wait_until_ready(|_| TcpStream::connect(address).ok())?;
        Ok(server)
    }

    fn spawn(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let program = Path::new(command.get_program()).display().to_string();
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot start {program}"))?;
        let (output, output_reader) = Written::lines(child.stdout.take().context("no output")?);
        let (log, log_reader) = Written::lines(child.stderr.take().context("no log")?);
        let readers = vec![output_reader, log_reader];
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Ok(Self { name: name.to_owned(), child, address, output, log, readers })
    }

    fn listen(mut self) -> anyhow::Result<Self> {
        self.address = self.wait_until_ready(|server| server.address_after("listening", "listening").ok())?;
        Ok(self)
    }

    fn wait_until_ready<T>(&mut self, mut ready: impl FnMut(&Self) -> Option<T>) -> anyhow::Result<T> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = ready(self) {
                return Ok(found);
            }
            if let Some(ended) = self.child.try_wait()? {
                for reader in self.readers.drain(..) {
                    let _ = reader.join();
                }
                let (output, log) = (self.output.text(), self.log.text());
                let last = log.lines().chain(output.lines()).last().unwrap_or_default();
                bail!("{} ended ({ended}) before it listened: {last}", self.name);
            }
            ensure!(Instant::now() < deadline, "{} does not listen after a minute", self.name);
            thread::sleep(GLANCE);
        }
    }

    /// The first address after `key` in the first line with `words` and an address.
    pub fn address_after(&self, words: &str, key: &str) -> anyhow::Result<SocketAddr> {
        let written = self.output.text() + &self.log.text();
        let mut rests = written.lines().filter(|line| line.contains(words)).filter_map(|line| line.split_once(key));
        let found = rests.find_map(|(_, rest)| address_in(rest));
        found.ok_or_else(|| anyhow!("{} printed no address after {key:?} in a line with {words:?}", self.name))
    }

    /// Its name in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its input.
    pub fn type_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("the input is open");
        writeln!(input, "{line}").expect("the input is read");
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Sends SIGSTOP and waits until every thread has stopped: until then one may still finish its work.
    pub fn freeze(&self) {
        self.signal("STOP");
        let runs = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat"))).unwrap_or_default();
            // The state follows the name in parentheses. An ended thread has none.
            stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('T'))
        };
        while std::fs::read_dir(self.threads()).expect("the server is there").any(runs) {
            thread::yield_now();
        }
    }

    fn threads(&self) -> String {
        format!("/proc/{}/task", self.id())
    }

    /// Sends SIGKILL: it cannot do anything more.
    pub fn kill(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server ends");
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        crate::wait_for("the server's end", || self.child.try_wait().expect("a process of this one"))
    }

    /// Pins all its threads to one core; threads started later inherit the core.
    pub fn pin_to(&self, core: usize) -> anyhow::Result<()> {
        let mut cores = CpuSet::new();
        cores.set(core);
        for thread in std::fs::read_dir(self.threads()).with_context(|| format!("{} has ended", self.name))? {
            let number = thread?.file_name().to_str().and_then(|number| number.parse().ok()).and_then(Pid::from_raw);
            // A thread that has ended meanwhile needs no core.
            let _ = sched_setaffinity(number, &cores);
        }
        Ok(())
    }

    /// CPU time of the process so far.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let path = format!("/proc/{}/stat", self.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("{} has ended", self.name))?;
        // The name in parentheses may contain spaces; user and system time are the 12th and 13th field after it.
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        // In order, because it may have processes of its own to end.
        self.signal("TERM");
        let deadline = Instant::now() + TIMEOUT;
        while self.is_running() {
            if Instant::now() >= deadline {
                eprintln!("{} did not end within a minute and was killed", self.name);
                self.kill();
            }
            thread::sleep(GLANCE);
        }
    }
}

/// First address in a line, with any text around it.
fn address_in(line: &str) -> Option<SocketAddr> {
    let is_part = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | ':' | '[' | ']');
    line.split(|letter: char| !is_part(letter)).find_map(|word| word.trim_end_matches(['.', ':']).parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_address_is_found_in_a_line_of_any_form() {
        for line in [
            "listening on 127.0.0.1:4711",
            "2026-01-01T10:11:12Z  INFO listening address=127.0.0.1:4711 books=4",
            r#"{"message":"listening","address":"127.0.0.1:4711"}"#,
        ] {
            assert_eq!(address_in(line), "127.0.0.1:4711".parse().ok(), "{line}");
        }
        assert_eq!(address_in("listening nowhere at 10:11"), None);
    }

    #[test]
    fn further_addresses_are_found_after_their_keys() {
        let script =
            "echo 'ports grpc=\"127.0.0.1:1\" lean=\"127.0.0.1:2\"'; echo listening on 127.0.0.1:3; exec sleep 60";
        let server = Server::start("it", &mut shell(script)).expect("it prints an address");
        let found = |key| server.address_after("ports", key).map_err(|error| error.to_string());
        assert_eq!((found("grpc="), found("lean=")), (Ok(local(1)), Ok(local(2))));
        assert!(found("http=").is_err_and(|error| error.contains("it printed no address")));
        assert_eq!(server.address, local(3));
    }

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_server_that_ends_at_once_is_reported_with_its_last_line() {
        let ends = || shell("echo no room >&2; exit 3");
        let address = free_address().expect("an address");
        for ended in [Server::start("it", &mut ends()), Server::start_at("it", &mut ends(), address)] {
            let error = ended.expect_err("ended").to_string();
            assert!(error.contains("ended (exit status: 3) before it listened: no room"), "{error}");
        }
    }
}
