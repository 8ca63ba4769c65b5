//! The task server's evaluation: 40 clients that ask 20 tasks each, every reply the seed of the next request, at four
//! levels from no concurrency at all to concurrent tasks whose results are kept; then the same once more on the server
//! that has kept them, beside a server that does nothing but answer, servers on one core and the client on another.
//!
//! Every level starts on a server that has computed nothing, and every reply is checked against what is computed here.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use tasks::Concurrency;
use tasks::chain::{self, Forecast, Outcome, Plan};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::server::Server;
use crate::{Findings, Options};
use bench::cores::{cores, pin_to};
use bench::stats::order::Orders;

/// The published client.
pub(super) const PLAN: Plan = Plan { clients: 40, requests: 20, seed: 1 };
/// What the published client prints on any server.
pub(super) const SUM: u64 = 3802;
/// Warm runs of a round on each of the two servers, after the first.
pub(super) const WARM_RUNS: usize = 200;
/// What they take together, more or less.
const WARM_SHOULD_TAKE: Duration = Duration::from_secs(4);

/// A step of the published table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// For programs.
    pub(super) name: &'static str,
    /// For people.
    pub(super) title: &'static str,
    /// As published, on 12 cores.
    pub(super) published_seconds: f64,
    pub(super) concurrency: Concurrency,
    pub(super) cache: bool,
    /// Settings of a server at this level.
    settings: [&'static str; 2],
    /// Measured in the first round only: it takes minutes, nearly all of them asleep.
    once: bool,
}

impl Level {
    /// The published time: nearly all of it is spent asleep, on any machine.
    fn should_take(&self) -> Duration {
        Duration::from_secs_f64(self.published_seconds)
    }
}

/// The published steps.
pub(super) const LEVELS: [Level; 4] = [
    Level {
        name: "none",
        title: "one request after another",
        published_seconds: 215.4,
        concurrency: Concurrency::None,
        cache: false,
        settings: ["tasks.concurrency=none", "tasks.cache=false"],
        once: true,
    },
    Level {
        name: "client",
        title: "clients beside each other",
        published_seconds: 17.4,
        concurrency: Concurrency::Client,
        cache: false,
        settings: ["tasks.concurrency=client", "tasks.cache=false"],
        once: false,
    },
    Level {
        name: "task",
        title: "every request as it comes",
        published_seconds: 14.6,
        concurrency: Concurrency::Task,
        cache: false,
        settings: ["tasks.concurrency=task", "tasks.cache=false"],
        once: false,
    },
    Level {
        name: "cached",
        title: "every request as it comes, results kept",
        published_seconds: 9.3,
        concurrency: Concurrency::Task,
        cache: true,
        settings: ["tasks.concurrency=task", "tasks.cache=true"],
        once: false,
    },
];

/// A run on a server that had computed nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cold {
    pub(super) level: Level,
    pub(super) round: usize,
    pub(super) elapsed: Duration,
    pub(super) connecting: Duration,
    /// Of the server's process.
    pub(super) cpu: Duration,
}

/// Who answers a warm run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answering {
    /// The server, from what it has kept, for the second time ever.
    Second,
    /// The server, from what it has kept.
    Quire,
    /// A server that answers each line with the same byte.
    Floor,
}

impl Answering {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Quire => "quire",
            Self::Floor => "floor",
        }
    }
}

/// A run for which nothing has to be computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warm {
    pub(super) answering: Answering,
    pub(super) round: usize,
    pub(super) elapsed: Duration,
    pub(super) connecting: Duration,
}

/// Everything measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    pub(super) cold: Vec<Cold>,
    pub(super) warm: Vec<Warm>,
}

/// Starts the servers, measures, and says what was found.
pub(super) fn run_experiment(options: &Options) -> anyhow::Result<Findings> {
    let forecast = Forecast::new(PLAN);
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let mut command = Command::new(&options.bench);
    let floor = Server::start("null", command.args(["null", "tcp", "--listen", "127.0.0.1:0"]))?;
    let data =
        tempfile::Builder::new().prefix("data-").tempdir_in(&options.out).context("no folder for the servers")?;
    let mut laboratory = Laboratory { options, data, runtime, forecast, floor, runs: Runs::default() };
    let mut orders = Orders::new(options.seed);
    for level in LEVELS {
        options.progress.expect(if level.once { 1 } else { options.rounds }, level.should_take());
    }
    options.progress.expect(options.rounds, WARM_SHOULD_TAKE);
    for round in 0..options.rounds {
        for level in orders.order(LEVELS.len()).into_iter().map(|place| LEVELS[place]) {
            if !level.once || round == 0 {
                laboratory.measure(level, round, &mut orders)?;
            }
        }
    }
    let Laboratory { forecast, floor, runs, .. } = laboratory;
    floor.stop()?;
    crate::tasks_page::findings(&runs, &forecast)
}

struct Laboratory<'a> {
    options: &'a Options,
    /// Of the servers, one after another.
    data: TempDir,
    runtime: Runtime,
    forecast: Forecast,
    floor: Server,
    runs: Runs,
}

impl Laboratory<'_> {
    /// A level on a new server, and with the cache the warm runs after it.
    fn measure(&mut self, level: Level, round: usize, orders: &mut Orders) -> anyhow::Result<()> {
        let server = self.start(level)?;
        let address = server.told("tasks are served", "address=")?;
        let before = server.cpu()?;
        let turn = format!("round {} of {}", round + 1, self.options.rounds);
        self.options.progress.begin(format!("{turn}, {}", level.title), Some(level.should_take()));
        let outcome = self.ask(address)?;
        let cpu = server.cpu()?.saturating_sub(before);
        let Outcome { elapsed, connecting, .. } = outcome;
        self.options.progress.end(&format!("{:.3} s, sum {}", elapsed.as_secs_f64(), outcome.sum()));
        self.runs.cold.push(Cold { level, round, elapsed, connecting, cpu });
        if level.cache {
            let cores = cores();
            let (Some(&server_core), Some(&client_core)) = (cores.first(), cores.last()) else {
                bail!("this process has no core to run on");
            };
            server.keep_to(server_core)?;
            self.floor.keep_to(server_core)?;
            let what = format!("{turn}, {WARM_RUNS} runs each of kept results and of a server that only answers");
            self.options.progress.begin(what, Some(WARM_SHOULD_TAKE));
            let progress = self.options.progress.clone();
            let warm = || {
                pin_to(client_core)?;
                self.warm(address, round, orders)
            };
            let warm = std::thread::scope(|threads| threads.spawn(warm).join());
            warm.map_err(|_| anyhow!("the client panicked"))??;
            progress.end("done");
        }
        server.stop()
    }

    fn start(&self, level: Level) -> anyhow::Result<Server> {
        let mut command = Command::new(&self.options.quire);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--tasks-listen", "127.0.0.1:0", "--data"])
            .arg(self.data.path());
        for setting in ["kv.enabled=false", "rpcgame.enabled=false"].iter().chain(&level.settings) {
            command.args(["--set", setting]);
        }
        Server::start(level.name, &mut command)
    }

    /// Asks all chains and checks every client's last reply, and so the sum.
    fn ask(&self, address: SocketAddr) -> anyhow::Result<Outcome> {
        let outcome = self.runtime.block_on(chain::run(address, PLAN))?;
        ensure!(
            outcome.last == self.forecast.last && outcome.sum() == SUM,
            "the server answered wrongly: the sum is {} and should be {SUM}",
            outcome.sum()
        );
        Ok(outcome)
    }

    fn warm(&mut self, address: SocketAddr, round: usize, orders: &mut Orders) -> anyhow::Result<()> {
        let mut keep = |answering, outcome: Outcome| {
            let Outcome { elapsed, connecting, .. } = outcome;
            self.runs.warm.push(Warm { answering, round, elapsed, connecting });
        };
        let second = self.runtime.block_on(chain::run(address, PLAN))?;
        ensure!(second.last == self.forecast.last, "a cached result differs from the computed one");
        keep(Answering::Second, second);
        for _ in 0..WARM_RUNS {
            for place in orders.order(2) {
                let answering = [Answering::Quire, Answering::Floor][place];
                let at = if answering == Answering::Quire { address } else { self.floor.address };
                let outcome = self.runtime.block_on(chain::run(at, PLAN))?;
                ensure!(
                    answering == Answering::Floor || outcome.last == self.forecast.last,
                    "a cached result differs from the computed one"
                );
                keep(answering, outcome);
            }
        }
        Ok(())
    }
}
