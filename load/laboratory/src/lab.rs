//! Starts servers, runs loads on subjects in turns, and keeps all runs.
//!
//! Each round runs every load on every subject, in a new random order: other activity of the machine then affects all
//! alike, and a round is a pair for the statistics.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bench::cores::cores;
use bench::plan::{End, Pace, Plan};
use bench::run::run;
use bench::stats::order::Orders;
use bench::tls::TlsArgs;
use bench::workload::Workload;
use bench::workload::grpc::{GrpcWorkload, Requests, Shape, Target};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use kit::Server;
use tempfile::TempDir;

use crate::results::{Observed, Results};

/// Services of `quire` that take a port; an experiment enables only the one that it measures.
const WITH_PORTS: [&str; 3] = ["kv", "rpcgame", "tasks"];

/// Options of an experiment.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Number of rounds; confidence intervals need at least 2
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one())]
    pub(crate) rounds: usize,
    /// The server's program [default: quire beside this program]
    #[arg(long, value_name = "FILE", default_value_os_t = beside("quire"), hide_default_value = true)]
    pub(crate) quire: PathBuf,
    /// The load generator's program, which `tasks` measures beside the server [default: quire-bench beside this
    /// program]
    #[arg(long, value_name = "FILE", default_value_os_t = beside("quire-bench"), hide_default_value = true)]
    pub(crate) bench: PathBuf,
    /// Folder of the programs to compare with [default: load/peers/target/release, looked for upwards from this
    /// program]
    #[arg(long, value_name = "DIR", default_value_os_t = above("load/peers/target/release"), hide_default_value = true)]
    pub(crate) peers: PathBuf,
    /// Folder of the clients' programs, which `clients` measures [default: target/clients, looked for upwards]
    #[arg(long, value_name = "DIR", default_value_os_t = above("target/clients"), hide_default_value = true)]
    pub(crate) clients: PathBuf,
    /// Seed of the order in which subjects take turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Rows of the file that `records` asks for [default: 1000000]; fewer only to try it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(200..=100_000_000))]
    pub(crate) rows: Option<u64>,
}

fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

fn beside(program: &str) -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name(program)
}

/// A folder of the project, searched upwards from this program.
fn above(below: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let below = Path::new(below);
    own.ancestors().map(|folder| folder.join(below)).find(|folder| folder.is_dir()).unwrap_or_else(|| below.to_owned())
}

/// Cores of servers and clients; none on a single-core machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) server: Option<usize>,
    pub(crate) client: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) options: Options,
    /// Cores to pin servers and clients to.
    pub(crate) cores: Cores,
    pub(crate) progress: Progress,
    pub(crate) results: Results,
    /// Missing measurements, with reasons.
    pub(crate) missing: Vec<String>,
    pub(crate) versions: Vec<String>,
    /// Random order of subjects.
    pub(crate) orders: Orders,
    /// Removed when the experiment ends.
    folder: TempDir,
}

impl Lab {
    /// Begins an experiment that writes into this folder.
    pub(crate) fn open(out: &Path, options: Options) -> anyhow::Result<Self> {
        let out = std::fs::canonicalize(out).context("no folder for data")?;
        let folder = tempfile::Builder::new().prefix("data-").tempdir_in(out).context("no folder for data")?;
        let cores = match cores()[..] {
            [server, .., client] => Cores { server: Some(server), client: Some(client) },
            _ => Cores { server: None, client: None },
        };
        let (orders, progress) = (Orders::new(options.seed), Progress::default());
        let (results, missing, versions) = (Results::default(), Vec::new(), Vec::new());
        Ok(Self { options, cores, progress, results, missing, versions, orders, folder })
    }

    /// Folder for data, as an absolute path.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn rounds(&self) -> Range<usize> {
        0..self.options.rounds
    }

    /// Starts `quire` on an empty folder, with this service and those that take no port.
    pub(crate) fn quire(&self, name: &str, service: &str, settings: &[&str]) -> anyhow::Result<Server> {
        let others = WITH_PORTS.iter().filter(|other| **other != service).map(|other| format!("{other}.enabled=false"));
        let mut command = Command::new(&self.options.quire);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(self.new_folder(name)?);
        // Loads of large answers need more than a server open to untrusted clients should allow.
        command.args(["--set", "limits.buffer_bytes=4 GiB"]);
        for setting in others.chain(settings.iter().map(|&setting| setting.to_owned())) {
            command.args(["--set", &setting]);
        }
        Server::start(name, &mut command)
    }

    /// Starts a program of `load/peers/` on an empty folder.
    pub(crate) fn peer(&self, name: &str, program: &str, arguments: &[&str]) -> anyhow::Result<Server> {
        let program = self.options.peers.join(program);
        ensure!(
            program.is_file(),
            "{} is not there; build it with `cargo build --release --manifest-path load/peers/Cargo.toml`, or name its \
             folder with --peers",
            program.display()
        );
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0", "--data"]).arg(self.new_folder(name)?).args(arguments);
        Server::start(name, &mut command)
    }

    /// Creates an empty folder within the data folder.
    pub(crate) fn new_folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let made = tempfile::Builder::new().prefix(name).tempdir_in(self.folder()).context("no folder for a server")?;
        Ok(made.keep())
    }

    /// Makes one run and keeps it. Without a time of its own, the mean of all steps is expected.
    pub(crate) fn step(
        &mut self,
        round: usize,
        load: &str,
        subject: &'static str,
        should_take: Option<Duration>,
        measure: impl FnOnce() -> anyhow::Result<Observed>,
    ) -> anyhow::Result<()> {
        let turn = format!("round {} of {}", round + 1, self.options.rounds);
        let words: Vec<&str> = [&turn, load, subject].into_iter().filter(|word| !word.is_empty()).collect();
        self.progress.begin(words.join(", "), should_take);
        let seen = measure()?;
        let [rate, seconds, p50] = ["per_second", "seconds", "p50_us"].map(|name| seen.figure(name));
        // A third-party load generator may not report latencies.
        let p50 = if p50 > 0.0 { format!(", p50 {p50:.0} µs") } else { String::new() };
        self.progress.end(&format!("{rate:.0} a second over {seconds:.1} s{p50}"));
        self.results.push(load, subject, round, seen);
        Ok(())
    }

    /// Runs each load on each subject in turn. The caller has announced these steps.
    pub(crate) fn in_turns<L>(
        &mut self,
        round: usize,
        subjects: &[&'static str],
        loads: &[(String, L)],
        mut measure: impl FnMut(&'static str, &L) -> anyhow::Result<Observed>,
    ) -> anyhow::Result<()> {
        for (name, load) in loads {
            for place in self.orders.order(subjects.len()) {
                self.step(round, name, subjects[place], None, || measure(subjects[place], load))?;
            }
        }
        Ok(())
    }
}

/// The server of this name.
pub(crate) fn named<'a>(servers: &'a [Server], name: &str) -> &'a Server {
    servers.iter().find(|server| server.name() == name).expect("an experiment measures the servers that it started")
}

/// A closed loop: each connection keeps `in_flight` requests in flight.
pub(crate) fn closed(connections: usize, in_flight: usize, end: End) -> Plan {
    Plan {
        pace: Pace::Closed,
        end,
        warm_up: Duration::ZERO,
        connections,
        in_flight,
        workers: cores().len().min(connections),
        cores: None,
        timeout: Duration::from_mins(1),
        seed: 1,
    }
}

/// Unary calls of a method.
pub(crate) fn calls(server: &Server, path: &str, requests: Requests) -> anyhow::Result<GrpcWorkload> {
    let target = Target::parse(&server.address.to_string(), &TlsArgs::default())?;
    Ok(GrpcWorkload::new(target, path, Shape::UNARY, requests))
}

/// Makes requests to prepare a server; all of them must succeed.
pub(crate) fn prepare(workload: &impl Workload, plan: &Plan) -> anyhow::Result<()> {
    let done = run(plan, workload, &mut ())?;
    ensure!(done.errors == 0, "{} of {} requests failed: {:?}", done.errors, done.requests, done.endings);
    Ok(())
}

/// Loads a server. `warm_up` is a preceding run that does not count. If the plan has a warm-up instead, the server's
/// CPU time includes it and is scaled to the measured time. At most this share of the requests may fail.
pub(crate) fn measure(
    server: &Server,
    workload: &impl Workload,
    warm_up: Option<End>,
    plan: &Plan,
    failed_share_max: f64,
) -> anyhow::Result<Observed> {
    if let Some(end) = warm_up {
        run(&Plan { end, ..plan.clone() }, workload, &mut ())?;
    }
    let before = server.cpu()?;
    let measured = run(plan, workload, &mut ())?;
    let spent = server.cpu()?.saturating_sub(before);
    let spent = match plan.end {
        End::After(duration) => spent.mul_f64(duration.as_secs_f64() / (duration + plan.warm_up).as_secs_f64()),
        End::Count(_) => spent,
    };
    let seen = Observed::of_run(&measured, spent);
    let failed_max = seen.figure("requests") * failed_share_max;
    let (errors, requests, endings) = (measured.errors, measured.requests, &measured.endings);
    ensure!(seen.figure("errors") <= failed_max, "{errors} of {requests} requests failed: {endings:?}");
    Ok(seen)
}

/// Progress of an experiment on standard error: the current step, the share done, and the time left.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    began: Option<Instant>,
    steps: usize,
    /// Steps that have begun, including the current one.
    begun: usize,
    /// Expected time of all steps.
    expected: Duration,
    /// Expected time of the finished steps.
    ended: Duration,
    /// The current step and its expected time.
    current: (String, Duration),
}

impl Progress {
    /// Announces further steps, each with this expected time.
    pub(crate) fn expect(&mut self, steps: usize, each: Duration) {
        self.steps += steps;
        self.expected += each * u32::try_from(steps).unwrap_or(u32::MAX);
    }

    /// Begins a step. Without a time of its own, the mean of all is expected.
    pub(crate) fn begin(&mut self, what: impl Into<String>, should_take: Option<Duration>) {
        eprintln!("{}", self.begin_line(what.into(), should_take, Instant::now()));
    }

    /// Ends the step, with its result.
    pub(crate) fn end(&mut self, found: &str) {
        eprintln!("{}", self.end_line(found));
    }

    fn begin_line(&mut self, what: String, should_take: Option<Duration>, now: Instant) -> String {
        let elapsed = now.saturating_duration_since(*self.began.get_or_insert(now));
        let mean = self.expected / u32::try_from(self.steps.max(1)).unwrap_or(u32::MAX);
        self.begun += 1;
        let left = seconds(self.left(elapsed));
        self.current = (what, should_take.unwrap_or(mean));
        let (what, takes) = &self.current;
        format!("{} {what}: begins; about {}, and {left} left in all", self.place(), seconds(*takes))
    }

    fn end_line(&mut self, found: &str) -> String {
        self.ended += self.current.1;
        format!("{} {}: {found}", self.place(), self.current.0)
    }

    fn place(&self) -> String {
        format!("[{} of {}]", self.begun, self.steps.max(self.begun))
    }

    /// Expected time of the remaining steps, at the pace of the finished ones.
    fn left(&self, elapsed: Duration) -> Duration {
        let left = self.expected.saturating_sub(self.ended);
        if self.ended.is_zero() { left } else { left.mul_f64(elapsed.as_secs_f64() / self.ended.as_secs_f64()) }
    }
}

/// Formats in seconds, or from two minutes on in minutes.
fn seconds(time: Duration) -> String {
    let whole = time.as_secs_f64().ceil();
    if whole < 120.0 { format!("{whole:.0} s") } else { format!("{:.0} min", (whole / 60.0).round()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_says_which_of_how_many_it_is_and_what_is_left_at_the_pace_so_far() {
        let mut progress = Progress::default();
        progress.expect(1, Duration::from_secs(200));
        progress.expect(3, Duration::from_secs(10));
        let began = Instant::now();
        let begin = |progress: &mut Progress, what: &str, takes: Option<u64>, after: u64| {
            progress.begin_line(what.to_owned(), takes.map(Duration::from_secs), began + Duration::from_secs(after))
        };
        let first = begin(&mut progress, "none", Some(200), 0);
        assert_eq!(first, "[1 of 4] none: begins; about 3 min, and 4 min left in all");
        assert_eq!(progress.end_line("215.4 s"), "[1 of 4] none: 215.4 s");
        // Everything takes twice as long as expected.
        let second = begin(&mut progress, "task", Some(10), 400);
        assert_eq!(second, "[2 of 4] task: begins; about 10 s, and 60 s left in all");
        let third = begin(&mut progress, "more", None, 420);
        assert_eq!(third, "[3 of 4] more: begins; about 58 s, and 63 s left in all");
    }
}
