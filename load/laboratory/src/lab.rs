//! Starts servers, runs loads on subjects in turns, and keeps all runs.
//!
//! Each round runs every load on every subject, in a new random order: other activity of the machine then affects all
//! alike, and a round is a pair for the statistics.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

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

use crate::progress::Progress;
use crate::results::{Observed, Results};

/// Services of `quire` that take a port; an experiment enables only the one that it measures.
const WITH_PORTS: [&str; 3] = ["kv", "rpcgame", "tasks"];

/// Options of an experiment.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Number of rounds; confidence intervals need at least 2
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one())]
    pub rounds: usize,
    /// The server's program [default: quire beside this program]
    #[arg(long, value_name = "FILE", default_value_os_t = beside("quire"), hide_default_value = true)]
    pub quire: PathBuf,
    /// The load generator's program, which `tasks` measures beside the server [default: quire-bench beside this
    /// program]
    #[arg(long, value_name = "FILE", default_value_os_t = beside("quire-bench"), hide_default_value = true)]
    pub bench: PathBuf,
    /// Folder of the programs to compare with [default: load/peers/target/release, looked for upwards from this
    /// program]
    #[arg(long, value_name = "DIR", default_value_os_t = above("load/peers/target/release"), hide_default_value = true)]
    pub peers: PathBuf,
    /// Folder of the clients' programs, which `clients` measures [default: target/clients, looked for upwards]
    #[arg(long, value_name = "DIR", default_value_os_t = above("target/clients"), hide_default_value = true)]
    pub clients: PathBuf,
    /// Seed of the order in which subjects take turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Rows of the file that `records` asks for [default: 1000000]; fewer only to try it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(200..=100_000_000))]
    pub rows: Option<u64>,
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
pub struct Cores {
    /// Core of the servers.
    pub server: Option<usize>,
    /// Core of the clients.
    pub client: Option<usize>,
}

/// A running experiment.
#[derive(Debug)]
pub struct Lab {
    /// Its options.
    pub options: Options,
    /// Cores to pin servers and clients to.
    pub cores: Cores,
    /// Progress output.
    pub progress: Progress,
    /// Every run so far.
    pub results: Results,
    /// Missing measurements, with reasons.
    pub missing: Vec<String>,
    /// Versions of the peers.
    pub versions: Vec<String>,
    /// Random order of subjects.
    pub orders: Orders,
    /// Removed when the experiment ends.
    folder: TempDir,
}

impl Lab {
    /// Begins an experiment that writes into this folder.
    pub fn open(out: &Path, options: Options) -> anyhow::Result<Self> {
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
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Round numbers.
    pub fn rounds(&self) -> Range<usize> {
        0..self.options.rounds
    }

    /// Starts `quire` on an empty folder, with this service and those that take no port.
    pub fn quire(&self, name: &str, service: &str, settings: &[&str]) -> anyhow::Result<Server> {
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
    pub fn peer(&self, name: &str, program: &str, arguments: &[&str]) -> anyhow::Result<Server> {
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
    pub fn new_folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let made = tempfile::Builder::new().prefix(name).tempdir_in(self.folder()).context("no folder for a server")?;
        Ok(made.keep())
    }

    /// Makes one run and keeps it. Without a time of its own, the mean of all steps is expected.
    pub fn step(
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
    pub fn in_turns<L>(
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
pub fn named<'a>(servers: &'a [Server], name: &str) -> &'a Server {
    servers.iter().find(|server| server.name() == name).expect("an experiment measures the servers that it started")
}

/// A closed loop: each connection keeps `in_flight` requests in flight.
pub fn closed(connections: usize, in_flight: usize, end: End) -> Plan {
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
pub fn calls(server: &Server, path: &str, requests: Requests) -> anyhow::Result<GrpcWorkload> {
    let target = Target::parse(&server.address.to_string(), &TlsArgs::default())?;
    Ok(GrpcWorkload::new(target, path, Shape::UNARY, requests))
}

/// Makes requests to prepare a server; all of them must succeed.
pub fn prepare(workload: &impl Workload, plan: &Plan) -> anyhow::Result<()> {
    let done = run(plan, workload, &mut ())?;
    ensure!(done.errors == 0, "{} of {} requests failed: {:?}", done.errors, done.requests, done.endings);
    Ok(())
}

/// Loads a server. `warm_up` is a preceding run that does not count. If the plan has a warm-up instead, the server's
/// CPU time includes it and is scaled to the measured time. At most this share of the requests may fail.
pub fn measure(
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
