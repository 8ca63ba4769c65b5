//! The task server's evaluation: 40 clients with 20 tasks each, every reply the seed of the next request, at four
//! levels from no concurrency to concurrent tasks with cached results; then again on the server with the full cache,
//! compared with a server that only answers, with servers on one core and the client on another.
//!
//! Every level starts on a server with an empty cache, and results are checked against a local computation.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::cores::on_core;
use bench::report::page::{Card, Table, Tone, Value};
use bench::report::plot::{Axis, Chart, Unit};
use bench::report::units;
use bench::stats::interval::median;
use kit::Server;
use tasks::Concurrency;
use tasks::chain::{self, Forecast, Outcome, Plan};
use tokio::runtime::{Builder, Runtime};

use crate::lab::Lab;
use crate::results::{Findings, Observed, Results, Summary, card, fixed, page, row, runs_csv, value};

/// The published client.
const PLAN: Plan = Plan { clients: 40, requests: 20, seed: 1 };
/// Output of the published client, on any server.
const SUM: u64 = 3802;
/// Warm runs of a round on each of the two servers, after the first.
const WARM_RUNS: usize = 200;
/// Approximate total duration.
const WARM_SHOULD_TAKE: Duration = Duration::from_secs(4);

/// A step of the published table.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// Name in keys.
    name: &'static str,
    /// Name for people.
    title: &'static str,
    /// As published, on 12 cores; nearly all of it is spent asleep, on any machine.
    published_seconds: f64,
    concurrency: Concurrency,
    cache: bool,
    settings: [&'static str; 2],
}

/// The published steps. The first is measured in the first round only, since it takes minutes.
const LEVELS: [Level; 4] = [
    Level {
        name: "none",
        title: "one request after another",
        published_seconds: 215.4,
        concurrency: Concurrency::None,
        cache: false,
        settings: ["tasks.concurrency=none", "tasks.cache=false"],
    },
    Level {
        name: "client",
        title: "clients beside each other",
        published_seconds: 17.4,
        concurrency: Concurrency::Client,
        cache: false,
        settings: ["tasks.concurrency=client", "tasks.cache=false"],
    },
    Level {
        name: "task",
        title: "every request as it comes",
        published_seconds: 14.6,
        concurrency: Concurrency::Task,
        cache: false,
        settings: ["tasks.concurrency=task", "tasks.cache=false"],
    },
    Level {
        name: "cached",
        title: "every request as it comes, results cached",
        published_seconds: 9.3,
        concurrency: Concurrency::Task,
        cache: true,
        settings: ["tasks.concurrency=task", "tasks.cache=true"],
    },
];

/// Subjects of warm runs: the server's second run, its further ones, and a server that only answers.
const SECOND: &str = "second";
const QUIRE: &str = "quire";
const FLOOR: &str = "floor";

/// Rows of the table of warm runs: title, key, subject, and part of the time.
const WARM_ROWS: [(&str, &str, &str, &str); 5] = [
    ("the second run", "second", SECOND, "elapsed_ms"),
    ("further runs", "warm", QUIRE, "elapsed_ms"),
    ("of that, until all were connected", "warm_connecting", QUIRE, "connecting_ms"),
    ("of that, after all were connected", "warm_asking", QUIRE, "asking_ms"),
    ("a server that only answers", "floor", FLOOR, "elapsed_ms"),
];

const RUNS: [&str; 7] =
    ["level=subject", "round", "seconds", "connecting_seconds", "bound_seconds", "sum", "server_cpu_ms=cpu_ms"];
const WARM: [&str; 4] = ["answering=subject", "round", "elapsed_us", "connecting_us"];

/// The client: runs all chains and checks every client's last reply.
struct Client {
    runtime: Runtime,
    forecast: Forecast,
}

/// Starts the servers, measures, and returns the findings.
pub(crate) fn run(lab: &mut Lab) -> anyhow::Result<Findings> {
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let client = Client { runtime, forecast: Forecast::new(PLAN) };
    let mut floor = Command::new(&lab.options.bench);
    let floor = Server::start(FLOOR, floor.args(["null", "tcp", "--listen", "127.0.0.1:0"]))?;
    for (number, level) in LEVELS.iter().enumerate() {
        lab.progress.expect(if number == 0 { 1 } else { lab.options.rounds }, level.should_take());
    }
    lab.progress.expect(lab.options.rounds, WARM_SHOULD_TAKE);
    let mut warm = Results::default();
    for round in lab.rounds() {
        for place in lab.orders.order(LEVELS.len()) {
            if place > 0 || round == 0 {
                client.measure(lab, LEVELS[place], round, &floor, &mut warm)?;
            }
        }
    }
    findings(&lab.results, &warm)
}

impl Level {
    fn should_take(&self) -> Duration {
        Duration::from_secs_f64(self.published_seconds)
    }
}

impl Client {
    /// Measures a level on a new server, and with the cache the warm runs after it.
    fn measure(
        &self,
        lab: &mut Lab,
        level: Level,
        round: usize,
        floor: &Server,
        warm: &mut Results,
    ) -> anyhow::Result<()> {
        let [concurrency, cache] = level.settings;
        let server = lab.quire(level.name, "tasks", &["tasks.listen=127.0.0.1:0", concurrency, cache])?;
        let address = server.address_after("tasks are served", "address=")?;
        lab.step(round, "", level.name, Some(level.should_take()), || {
            let before = server.cpu()?;
            let outcome = self.ask(address)?;
            let spent = server.cpu()?.saturating_sub(before);
            Ok(self.cold(level, &outcome, spent))
        })?;
        if !level.cache {
            return Ok(());
        }
        if let Some(core) = lab.cores.server {
            server.pin_to(core)?;
            floor.pin_to(core)?;
        }
        let what =
            format!("round {}, {WARM_RUNS} runs each of cached results and of a server that only answers", round + 1);
        lab.progress.begin(what, Some(WARM_SHOULD_TAKE));
        on_core(lab.cores.client, || self.warm(lab, address, floor.address, round, warm))?;
        lab.progress.end("done");
        Ok(())
    }

    fn cold(&self, level: Level, outcome: &Outcome, server_cpu: Duration) -> Observed {
        let seconds = outcome.elapsed.as_secs_f64();
        let bound = self.forecast.bound(level.concurrency, level.cache).as_secs_f64();
        Observed::new([
            ("seconds", seconds),
            ("published_seconds", level.published_seconds),
            ("bound_seconds", bound),
            ("over_percent", (seconds - bound) / bound * 100.0),
            ("connecting_seconds", outcome.connecting.as_secs_f64()),
            ("per_second", units::float(PLAN.clients * PLAN.requests) / seconds),
            ("sum", units::float(outcome.sum())),
            ("cpu_ms", (server_cpu.as_secs_f64() * 1e3).round()),
        ])
    }

    fn ask(&self, address: SocketAddr) -> anyhow::Result<Outcome> {
        let outcome = self.runtime.block_on(chain::run(address, PLAN))?;
        let sum = outcome.sum();
        ensure!(
            outcome.last == self.forecast.last && sum == SUM,
            "the server answered wrongly: the sum is {sum} and should be {SUM}"
        );
        Ok(outcome)
    }

    fn warm(
        &self,
        lab: &mut Lab,
        quire: SocketAddr,
        floor: SocketAddr,
        round: usize,
        into: &mut Results,
    ) -> anyhow::Result<()> {
        let mut keep = |subject, outcome: Outcome| {
            let Outcome { elapsed, connecting, .. } = outcome;
            let parts = [
                ("elapsed_us", elapsed),
                ("connecting_us", connecting),
                ("asking_us", elapsed.saturating_sub(connecting)),
            ];
            let figures = parts.map(|(name, time)| (name, (time.as_secs_f64() * 1e6).floor()));
            into.push("warm", subject, round, Observed::new(figures));
        };
        keep(SECOND, self.ask(quire)?);
        for _ in 0..WARM_RUNS {
            for place in lab.orders.order(2) {
                match place {
                    0 => keep(QUIRE, self.ask(quire)?),
                    // Its replies are not results.
                    _ => keep(FLOOR, self.runtime.block_on(chain::run(floor, PLAN))?),
                }
            }
        }
        Ok(())
    }
}

fn findings(cold: &Results, warm: &Results) -> anyhow::Result<Findings> {
    let page = page(
        "The task server's experiments",
        format!(
            "{} clients of {} requests each, every reply the seed of the client's next request; the sum of the last \
             replies was {SUM} in every run, and each of them was what it should be.",
            PLAN.clients, PLAN.requests
        ),
    )
    .cards(cards(cold, warm))
    .heading("From no concurrency to cached results")
    .paragraph(
        "Seconds from the first connection to the last reply, each on a server that had computed nothing. The \
             shortest possible is what the waits alone take, with processors that take no time: all of them after each \
             other, the longest chain of a client, or, where results are cached, the longest chain of waits that had \
             not begun before. Published on 12 cores.",
    )
    .table(levels(cold))
    .heading("Once more, when everything is cached")
    .paragraph(format!(
        "The same {} requests from one thread, to a server that has all results: a round trip for each is what is \
             left. In turns with the same requests to a server that only answers. The servers have one core and the \
             client another. The time begins with the first of {} connections and ends with the last reply; the \
             process and its thread are there already. A client asks as soon as it is connected.",
        PLAN.clients * PLAN.requests,
        PLAN.clients
    ))
    .table(warm_table(warm))
    .charts(vec![warm_chart(warm)]);
    let csvs = vec![("runs.csv", runs_csv(cold.all(), &RUNS)?), ("warm.csv", runs_csv(warm.all(), &WARM)?)];
    Ok(Findings { page, csvs, summary: summary(cold, warm) })
}

fn cards(cold: &Results, warm: &Results) -> Vec<Card> {
    let [first, .., cached] = LEVELS;
    let seconds = |level: Level| cold.median("", level.name, "seconds");
    let elapsed = |subject| warm.median("warm", subject, "elapsed_ms");
    let over = cold.median("", cached.name, "over_percent");
    let plain = |name, value, note: String| Card { tone: Tone::Plain, ..card(name, value, note) };
    vec![
        card(
            "Concurrent tasks, results cached",
            value("cached_seconds", seconds(cached), |seconds| format!("{seconds:.3} s")),
            format!("{over:.2}% over the shortest possible; published {} s", cached.published_seconds),
        ),
        plain(
            "Once more, warm",
            value("warm_median_ms", elapsed(QUIRE), |ms| format!("{ms:.2} ms")),
            format!("{:.2} ms with a server that only answers", elapsed(FLOOR)),
        ),
        plain(
            "One request after another",
            value("none_seconds", seconds(first), |seconds| format!("{seconds:.1} s")),
            format!("published {} s", first.published_seconds),
        ),
    ]
}

fn levels(cold: &Results) -> Table {
    let heads = ["level", "published, s", "measured, s", "shortest possible, s", "over it", "runs", "server CPU, ms"];
    let rows = LEVELS.iter().map(|level| {
        let cell = |figure, show| cold.cell("", level.name, figure, show);
        let published = format!("{:.1}", level.published_seconds);
        let runs = cold.of("", level.name).count().to_string();
        let cells = [
            cell("seconds", fixed::<3>),
            cell("bound_seconds", fixed::<3>),
            cell("over_percent", |percent| format!("{percent:.2}%")),
            Value::text(runs),
            cell("cpu_ms", units::number),
        ];
        row([level.title, &published], cells)
    });
    Table::of_numbers("The published levels", heads, rows)
}

/// Minimum, 10th percentile, median and 90th percentile.
fn spread(warm: &Results, subject: &str, part: &str) -> [(&'static str, f64); 4] {
    let times = sorted(warm, subject, part);
    let at = |tenths: usize| times.get(times.len() * tenths / 10).copied().unwrap_or(f64::NAN);
    [("least", at(0)), ("p10", at(1)), ("median", median(&times)), ("p90", at(9))]
}

fn sorted(warm: &Results, subject: &str, part: &str) -> Vec<f64> {
    let mut times = warm.figures("warm", subject, part);
    times.sort_by(f64::total_cmp);
    times
}

fn warm_table(warm: &Results) -> Table {
    let heads = ["milliseconds", "least", "a tenth below", "median", "nine tenths below"];
    let rows = WARM_ROWS.map(|(title, key, subject, part)| {
        let times = spread(warm, subject, part);
        row([title], times.map(|(name, ms)| value(format!("{key}_{name}_ms"), ms, fixed::<2>)))
    });
    Table::of_numbers("Warm runs", heads, rows)
}

fn warm_chart(warm: &Results) -> Chart {
    let axes =
        (Axis::linear("part of the runs", Unit::Share).from(0.0).to(1.0), Axis::log("time of a run", Unit::Micros));
    let caption =
        format!("The time within which this part of the runs ended; {WARM_RUNS} of each in a round, in turns.");
    let series = [(QUIRE, "cached results"), (FLOOR, "only answers")].map(|(subject, name)| {
        let times = sorted(warm, subject, "elapsed_us");
        let points =
            times.iter().enumerate().map(|(place, us)| (units::real(place + 1) / units::real(times.len()), *us));
        (name, points.collect())
    });
    Chart::of_lines("Warm runs, from the quickest to the slowest", caption, axes, series)
}

fn summary(cold: &Results, warm: &Results) -> Summary {
    let mut summary = Summary::default();
    summary.add("sum", units::float(SUM));
    summary.medians(
        cold,
        "",
        &LEVELS.map(|level| level.name),
        &["seconds", "published_seconds", "bound_seconds", "over_percent"],
    );
    for (_, key, subject, part) in WARM_ROWS {
        for (name, ms) in spread(warm, subject, part) {
            summary.add(format!("{key}_{name}_ms"), ms);
        }
    }
    summary
}
