//! Starts servers on ports chosen by the system, parses the addresses that they print, and ends them.

use std::io::{BufRead as _, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use bench::cores::pin_to;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Time limit for a server to listen, and to end.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A running server; ended on drop.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Its listening address.
    pub address: SocketAddr,
    name: String,
    /// Lines printed before it listened.
    said: Vec<String>,
}

impl Server {
    /// Starts a program and waits until it prints `listening` with its address, on either output.
    pub fn start(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let (mut server, lines) = Self::spawn(name, command)?;
        server.address = server.wait_for_address(&lines)?;
        Ok(server)
    }

    /// Starts a program with a given address, and waits until it listens there.
    pub fn start_at(name: &str, command: &mut Command, address: SocketAddr) -> anyhow::Result<Self> {
        let (mut server, lines) = Self::spawn(name, command)?;
        server.address = address;
        let deadline = Instant::now() + TIMEOUT;
        while TcpStream::connect(address).is_err() {
            if let Some(ended) = server.child.try_wait()? {
                bail!("{name} ended ({ended}) before it listened: {}", lines.iter().last().unwrap_or_default());
            }
            ensure!(Instant::now() < deadline, "{name} does not listen on {address} after a minute");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn spawn(name: &str, command: &mut Command) -> anyhow::Result<(Self, mpsc::Receiver<String>)> {
        let program = Path::new(command.get_program()).display().to_string();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let (sender, lines) = mpsc::channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|output| Box::new(output) as Box<dyn Read + Send>),
            child.stderr.take().map(|output| Box::new(output) as Box<dyn Read + Send>),
        ];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            // Reads to the end, because a full pipe would block the server.
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        drop(sender);
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok((Self { child, address, name: name.to_owned(), said: Vec::new() }, lines))
    }

    fn wait_for_address(&mut self, lines: &mpsc::Receiver<String>) -> anyhow::Result<SocketAddr> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(address) = line.contains("listening").then(|| address_in(&line)).flatten() {
                        return Ok(address);
                    }
                    self.said.push(line);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => bail!("{} does not listen after a minute", self.name),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let ended = self.child.wait()?;
                    bail!(
                        "{} ended ({ended}) before it listened: {}",
                        self.name,
                        self.said.last().map_or("", String::as_str)
                    );
                }
            }
        }
    }

    /// An address printed before it listened: the first one after `key` in the line with `words`.
    pub fn told(&self, words: &str, key: &str) -> anyhow::Result<SocketAddr> {
        let line = self.said.iter().find(|line| line.contains(words));
        let told = line.and_then(|line| line.split_once(key)).and_then(|(_, rest)| address_in(rest));
        told.ok_or_else(|| anyhow!("{} printed no address after {key:?} in a line with {words:?}", self.name))
    }

    /// Pins all its threads to one core; threads started later inherit the core.
    pub fn pin_to(&self, core: usize) -> anyhow::Result<()> {
        let mut cores = CpuSet::new();
        cores.set(core);
        let threads = format!("/proc/{}/task", self.child.id());
        for thread in std::fs::read_dir(&threads).with_context(|| format!("{} has ended", self.name))? {
            let number = thread?.file_name().to_str().and_then(|number| number.parse().ok()).and_then(Pid::from_raw);
            // A thread that has ended meanwhile needs no core.
            let _ = sched_setaffinity(number, &cores);
        }
        Ok(())
    }

    /// CPU time of the process so far.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("{} has ended", self.name))?;
        // The name in parentheses may contain spaces; user and system time are the 12th and 13th field after it.
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
    }

    fn terminate(&mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or_else(|| anyhow!("{} has no process", self.name))?, Signal::TERM)?;
        let deadline = Instant::now() + TIMEOUT;
        while self.child.try_wait()?.is_none() {
            if Instant::now() >= deadline {
                self.child.kill()?;
                self.child.wait()?;
                bail!("{} did not end within a minute and was killed", self.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.terminate() {
            eprintln!("{error:#}");
        }
    }
}

/// The server of this name.
pub fn named<'a>(servers: &'a [Server], name: &str) -> &'a Server {
    servers.iter().find(|server| server.name == name).expect("an experiment measures the servers that it started")
}

/// Runs `start` on one core; its child processes stay there. Without a core it runs anywhere.
pub fn on_core<R>(core: Option<usize>, start: impl FnOnce() -> R) -> R {
    // A process inherits the cores of the thread that starts it. If pinning is not permitted, nothing is pinned.
    let before = core.and_then(|core| {
        let before = sched_getaffinity(None).ok()?;
        pin_to(core).ok()?;
        Some(before)
    });
    let started = start();
    if let Some(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    started
}

/// A recently free address of this machine, for programs that do not print the one they choose.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?)
}

/// First address in a line, with any text around it.
fn address_in(line: &str) -> Option<SocketAddr> {
    let is_part = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | ':' | '[' | ']');
    line.split(|letter: char| !is_part(letter)).find_map(|word| word.trim_end_matches(['.', ':']).parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo 'ports grpc=\"127.0.0.1:1\" lean=\"127.0.0.1:2\"'; echo listening on 127.0.0.1:3; cat"]);
        let server = Server::start("it", &mut command).expect("it says where");
        let told = |key| server.told("ports", key).map_err(|error| error.to_string());
        assert_eq!((told("grpc="), told("lean=")), (Ok(addr(1)), Ok(addr(2))));
        assert!(told("http=").is_err_and(|error| error.contains("it printed no address")));
        assert_eq!(server.address, addr(3));
    }

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_server_that_ends_at_once_is_reported_with_its_last_line() {
        let error =
            Server::start("it", Command::new("sh").args(["-c", "echo no room >&2; exit 3"])).expect_err("ended");
        assert!(error.to_string().contains("ended (exit status: 3) before it listened: no room"), "{error}");
    }

    #[test]
    fn a_server_with_a_given_address_that_ends_is_reported_with_its_last_line() {
        let address = free_address().expect("an address");
        let ended = Server::start_at("it", Command::new("sh").args(["-c", "echo no room >&2; exit 3"]), address);
        let error = ended.expect_err("ended").to_string();
        assert!(error.contains("ended (exit status: 3) before it listened: no room"), "{error}");
    }

    #[test]
    fn what_is_started_on_a_core_stays_there_and_the_caller_does_not() {
        let before = sched_getaffinity(None).expect("known");
        let core = (0..CpuSet::MAX_CPU).find(|core| before.is_set(*core)).expect("a core");
        let told =
            on_core(Some(core), || Command::new("grep").args(["Cpus_allowed_list", "/proc/self/status"]).output());
        let told = String::from_utf8(told.expect("it runs").stdout).expect("text");
        assert_eq!(told.split_whitespace().last(), Some(&*core.to_string()));
        assert_eq!(sched_getaffinity(None).expect("known"), before);
    }
}
