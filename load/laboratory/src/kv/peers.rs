//! Alternatives for comparison: Redis, measured by its own benchmark, and etcd, as Debian packages them, with default
//! settings except those set here. A peer that is not installed is reported as missing.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::cores::on_core;
use bench::report::units::float;
use kit::Server;
use kit::server::free_address;

use super::load::{SMALL_KEYS, SMALL_VALUE_BYTES, Small};
use crate::lab::Lab;
use crate::results::Observed;

/// Memory-backed folder on Linux.
const MEMORY: &str = "/dev/shm";

/// Finds a program in `PATH`.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// First line of the output of `--version`.
fn version(program: &Path) -> String {
    let output_text = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let output_text =
        output_text.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    output_text.lines().next().unwrap_or("of unknown version").to_owned()
}

/// True if etcd's data is in memory; otherwise it is on the disk of the results.
pub(super) fn has_memory_folder() -> bool {
    Path::new(MEMORY).is_dir()
}

/// Program of a peer. Records in the lab its version, or that it is missing.
fn installed(lab: &mut Lab, name: &str, packages: &str) -> Option<PathBuf> {
    let found = find(name);
    match &found {
        Some(program) => lab.versions.push(version(program)),
        None => lab.missing.push(format!("{name} is not installed: apt-get install {packages}")),
    }
    found
}

/// A running etcd, with its folder.
pub(super) struct Etcd {
    pub(super) server: Server,
    // Removed after the server has stopped: fields are dropped in order.
    _folder: tempfile::TempDir,
}

impl Etcd {
    /// Starts one member, with its data in memory if possible.
    pub(super) fn start(lab: &mut Lab) -> anyhow::Result<Option<Self>> {
        let Some(program) = installed(lab, "etcd", "etcd-server") else { return Ok(None) };
        let parent = if has_memory_folder() { Path::new(MEMORY) } else { lab.folder() };
        let folder = tempfile::Builder::new().prefix("quire-laboratory-").tempdir_in(parent).context("no folder")?;
        let (address, peers) = (free_address()?, format!("http://{}", free_address()?));
        let clients = format!("http://{address}");
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(folder.path());
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}"), "--log-level", "error"]);
        let server = on_core(lab.cores.server, || Server::start_at("etcd", &mut command, address))?;
        Ok(Some(Self { server, _folder: folder }))
    }
}

/// A running Redis, and its benchmark.
pub(super) struct Redis {
    server: Server,
    benchmark: PathBuf,
    client_core: Option<usize>,
}

impl Redis {
    /// Starts without persistence, as the others are in memory too; creates all keys.
    pub(super) fn start(lab: &mut Lab) -> anyhow::Result<Option<Self>> {
        let Some(benchmark) = find("redis-benchmark") else {
            installed(lab, "redis-benchmark", "redis-tools");
            return Ok(None);
        };
        let Some(program) = installed(lab, "redis-server", "redis-server redis-tools") else { return Ok(None) };
        let address = free_address()?;
        let mut command = Command::new(program);
        command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
        command.args(["--save", "", "--appendonly", "no"]);
        let server = on_core(lab.cores.server, || Server::start_at("redis-server", &mut command, address))?;
        let redis = Self { server, benchmark, client_core: lab.cores.client };
        // Keys are drawn at random: after this many draws 0.005 keys are missing on average.
        redis.requests(Small::Write, (10, 100), SMALL_KEYS * 17)?;
        Ok(Some(redis))
    }

    /// Makes requests for about this long. `batching`: connections, and requests in flight on each.
    pub(super) fn run(&self, small: Small, batching: (usize, usize), duration: Duration) -> anyhow::Result<Observed> {
        let first = self.requests(small, batching, 50_000)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of requests is small")]
        let count = (first * duration.as_secs_f64()) as u64;
        let before = self.server.cpu()?;
        let rate = self.requests(small, batching, count)?;
        let spent = self.server.cpu()?.saturating_sub(before).as_secs_f64();
        let (requests, seconds) = (float(count), float(count) / rate);
        Ok(Observed::new([
            ("requests", requests),
            ("errors", 0.0),
            ("seconds", seconds),
            ("per_second", rate),
            ("cpu_us", spent * 1e6 / requests),
            ("busy", spent / seconds),
        ]))
    }

    /// Makes `count` requests; returns the rate per second.
    fn requests(&self, small: Small, (connections, in_flight): (usize, usize), count: u64) -> anyhow::Result<f64> {
        let test = if small == Small::Read { "get" } else { "set" };
        let address: SocketAddr = self.server.address;
        let mut command = Command::new(&self.benchmark);
        command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string(), "-t", test, "--csv"]);
        command.args(["-c", &connections.to_string(), "-P", &in_flight.to_string(), "-n", &count.to_string()]);
        command.args(["-r", &SMALL_KEYS.to_string(), "-d", &SMALL_VALUE_BYTES.to_string()]);
        let output = on_core(self.client_core, || command.stdin(Stdio::null()).output())
            .with_context(|| format!("cannot start {}", self.benchmark.display()))?;
        let output_text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "redis-benchmark failed: {}", String::from_utf8_lossy(&output.stderr));
        rate_of(&output_text).with_context(|| format!("redis-benchmark printed no rate: {output_text}"))
    }
}

/// Second field of the last line: `"GET","123456.78","0.5",…`.
fn rate_of(csv: &str) -> Option<f64> {
    let line = csv.lines().rfind(|line| !line.trim().is_empty())?;
    line.split(',').nth(1)?.trim().trim_matches('"').parse().ok().filter(|rate: &f64| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found_in_the_output_of_the_benchmark() {
        let output_text = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"1538461.50\",\"0.500\"\n";
        assert_eq!(rate_of(output_text), Some(1_538_461.5));
        assert_eq!(rate_of("\"test\",\"rps\"\n"), None);
        assert_eq!(rate_of(""), None);
    }

    #[test]
    fn programs_are_looked_up_where_the_shell_looks() {
        assert!(find("sh").is_some_and(|program| program.is_file()));
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
