//! Writes made-up measurements as JSON and as pages into a folder, for readers, tests and work on the pages, without
//! measuring anything.
//!
//! `cargo run -p bench --example sample_reports -- FOLDER`

use std::path::Path;

use anyhow::Context as _;
use bench::measurement::{FORMAT, Finish, Interval, Load, Machine, Report, Run, ServerSide, Verdict};
use bench::report::page::{Column, Page, Table, Value};
use bench::report::pending::Pending;
use bench::report::plot::{Across, Axis, Chart, Colour, Rule, Series, Shape, Unit};
use bench::report::{html, json, units};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const CLIENTS: u32 = 10;
const SECONDS: f64 = 20.0;
const RATE: f64 = 4_000.0;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).context("the folder to write into is missing")?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let open = Load { pace: "poisson".to_owned(), rate: Some(RATE), ..load() };
    let mut invalid = run(5, true);
    invalid.verdict = Verdict {
        reasons: vec![
            "worker 1 was busy 99.2% of its time: the client was the bottleneck".to_owned(),
            "the rate was not reached: 3,211 /s of 4,000 /s".to_owned(),
        ],
        ..Verdict::default()
    };
    invalid.interrupted = true;
    let nothing = Run { seconds: SECONDS, ..Run::default() };
    let reports = [
        ("open", open.clone(), vec![run(1, true)]),
        ("closed", load(), vec![run(2, false)]),
        ("runs", open.clone(), (10..15).map(|seed| run(seed, true)).collect()),
        ("invalid", open, vec![invalid]),
        ("nothing", load(), vec![nothing]),
        ("overload", ramp(), vec![overloaded()]),
    ];
    for (name, load, runs) in reports {
        let report =
            Report { format: FORMAT.to_owned(), tool: "quire-bench 0.1.0".to_owned(), machine: machine(), load, runs };
        let [saved, page] = ["json", "html"].map(|ending| folder.join(name).with_extension(ending));
        json::write(&report, Pending::create(&saved)?)?;
        Pending::create(&page)?.write_whole(html::page(&report).as_bytes())?;
    }
    Pending::create(&folder.join("answers.html"))?.write_whole(answers().as_bytes())
}

fn load() -> Load {
    let settings = [
        ("warm-up", "1s"),
        ("timeout", "30s"),
        ("seed", "1"),
        ("data", "{\"number\": {{random:1..1000}}, \"copies\": 1}"),
    ];
    Load {
        protocol: "grpc".to_owned(),
        target: "http://127.0.0.1:10086".to_owned(),
        what: "quire.bookstore.v1.BookStore/Buy".to_owned(),
        pace: "closed".to_owned(),
        rate: None,
        connections: CLIENTS as usize,
        in_flight: 1,
        workers: 2,
        settings: settings.map(|(flag, value)| (flag.to_owned(), value.to_owned())).into(),
    }
}

/// A ramp far beyond the capacity of its server.
fn ramp() -> Load {
    Load {
        protocol: "http".to_owned(),
        target: "http://127.0.0.1:10086/search?topic=distributed%20systems".to_owned(),
        what: "GET".to_owned(),
        pace: "poisson".to_owned(),
        rate: Some(5_000.0),
        connections: 300,
        ..load()
    }
}

/// A ramp to 10,000 requests a second on a server with a capacity of 2,000, with a timeout of 3 s.
fn overloaded() -> Run {
    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(6));
    let mut run = Run { began_unix_ms: 1_790_000_500_000, seconds: SECONDS, ..Run::default() };
    for half in 0..46_u32 {
        let at = f64::from(half) * 0.5;
        let asked = if at < SECONDS { 500.0 * (at + 0.25) } else { 0.0 };
        let behind_s = ((at - 4.0) * 0.6).clamp(0.0, 3.0);
        let answers = place(asked.min(2_000.0).max(if at > 4.0 { 2_000.0 } else { 0.0 }) * 0.5);
        let not_sent = if at > 9.0 && at < SECONDS + 3.0 { place((asked.max(2_500.0) - 2_000.0) * 0.5) } else { 0 };
        let service = |random: &mut Random| 6e-4 * random.ratio(0.5);
        for number in 0..answers {
            let (sent, waited) = (service(&mut random), behind_s * (0.9 + 0.1 * random.part()));
            record(&mut run, [waited + sent, sent, sent * 0.9, waited], true);
            if number % 5 == 0 {
                let (client, turn) = (random.0.next_u32() % 300, number as u64);
                let at_seconds = at + random.part() * 0.5;
                run.finishes.push(Finish { client, turn, at_seconds, response_us: (waited + sent) * 1e6 });
            }
        }
        for times in [&mut run.response, &mut run.lag] {
            times.histogram.record_n(3_000_000_000, not_sent as u64).expect("far below an hour");
        }
        run.requests += not_sent as u64;
        run.errors += not_sent as u64;
        run.completed += if at < SECONDS { answers as u64 } else { 0 };
        let typical = (behind_s + 6e-4) * 1e6;
        run.series.push(Interval {
            at_seconds: at,
            seconds: 0.5,
            requests: answers as u64,
            due: asked * 0.5,
            errors: not_sent as u64,
            p50_us: typical,
            p90_us: typical * 1.1,
            p99_us: typical * 1.3,
            p999_us: typical * 1.5,
            max_us: typical * 1.9,
        });
    }
    run.sent = run.requests - run.errors;
    run.endings = [("200".to_owned(), run.sent), ("not sent".to_owned(), run.errors)].into();
    run.rate = units::float(run.completed) / SECONDS;
    (run.sent_bytes, run.received_bytes) = (run.completed * 80, run.completed * 310);
    (run.client_cpu_seconds, run.client_busy_max) = (1.4, 0.06);
    run.verdict.reasons = vec![
        "the rate was not reached: 1,890 a second of 5,000 asked for".to_owned(),
        format!("requests were due and never sent: {} of {}", run.errors, run.requests),
    ];
    run.verdict.doubts = vec!["requests waited in the client: p50 is 2.9 s from when they were due".to_owned()];
    run
}

fn machine() -> Machine {
    Machine { cpu: "Example CPU @ 2.60GHz".to_owned(), cores: 2, system: "Linux 6.1.0".to_owned() }
}

struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Between 0 and 1, both excluded.
    fn part(&mut self) -> f64 {
        (f64::from(self.0.next_u32()) + 0.5) / (f64::from(u32::MAX) + 1.0)
    }

    /// Around 1, spread by ratio.
    fn ratio(&mut self, sigma: f64) -> f64 {
        let normal = (-2.0 * self.part().ln()).sqrt() * (std::f64::consts::TAU * self.part()).cos();
        (sigma * normal).exp()
    }
}

/// Clients that take turns at a server which batches its work, has a tail and stalls twice.
fn run(seed: u64, open: bool) -> Run {
    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(seed));
    let stalls = [(5.3, 0.35), (13.1 + random.part(), 0.12)];
    let mut run = Run { began_unix_ms: 1_790_000_000_000 + seed * 25_000, seconds: SECONDS, ..Run::default() };
    let mut parts: Vec<Vec<f64>> = vec![Vec::new(); 40];
    let mut failed = vec![0; parts.len()];
    for client in 0..CLIENTS {
        let (mut due, mut free, mut turn) = (0.0, 0.0_f64, 0);
        loop {
            let gap = -random.part().ln() * f64::from(CLIENTS) / RATE;
            due = if open { due + gap } else { free };
            let sent = free.max(due) + 4e-6 * random.ratio(0.5);
            let slow = if random.part() < 0.004 { 14.0 } else { 1.0 };
            let mut done = sent + 2.1e-4 * random.ratio(0.32) * slow * if client == 7 { 1.25 } else { 1.0 };
            for (from, length) in stalls {
                if sent < from + length && done > from {
                    done = from + length + 1e-4 * f64::from(client) + 3e-4 * random.ratio(0.5);
                }
            }
            if done >= SECONDS {
                break;
            }
            free = done;
            let response = done - if open { due } else { sent };
            let stalled = stalls.iter().any(|(from, length)| (*from..from + length + 0.05).contains(&done));
            let ending = if stalled && random.part() < 0.35 { "UNAVAILABLE" } else { "OK" };
            *run.endings.entry(ending.to_owned()).or_default() += 1;
            record(&mut run, [response, done - sent, (done - sent) * 0.97, sent - due], open);
            let part = place(done / SECONDS * 40.0);
            parts[part].push(response * 1e6);
            failed[part] += u64::from(ending != "OK");
            if turn % 20 == 0 || stalled {
                run.finishes.push(Finish { client, turn, at_seconds: done, response_us: response * 1e6 });
            }
            turn += 1;
        }
    }
    series(&mut run, parts, &failed, open);
    run
}

fn record(run: &mut Run, seconds: [f64; 4], open: bool) {
    let into = [&mut run.response, &mut run.service, &mut run.first_byte, &mut run.lag];
    for (distribution, seconds) in into.into_iter().zip(seconds).take(if open { 4 } else { 3 }) {
        distribution.histogram.record(place(seconds * 1e9) as u64).expect("far below an hour");
    }
    run.requests += 1;
}

fn series(run: &mut Run, parts: Vec<Vec<f64>>, failed: &[u64], open: bool) {
    for (number, mut times) in (0_u32..).zip(parts) {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            times
                .get(place(share * units::float(times.len() as u64 - u64::from(!times.is_empty()))))
                .copied()
                .unwrap_or(0.0)
        };
        run.series.push(Interval {
            at_seconds: f64::from(number) * 0.5,
            seconds: 0.5,
            requests: times.len() as u64,
            due: if open { RATE * 0.5 } else { 0.0 },
            errors: failed[number as usize],
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
        });
    }
    let requests = units::float(run.requests);
    run.errors = failed.iter().sum();
    (run.sent, run.completed) = (run.requests, run.requests);
    run.rate = requests / SECONDS;
    (run.sent_bytes, run.received_bytes) = (run.requests * 96, run.requests * 71);
    (run.client_cpu_seconds, run.client_busy_max) = (requests * 9.1e-6, 0.041);
    let shares = [0.002, 0.05, 0.31, 0.44, 0.16, 0.03, 0.004, 0.003, 0.001];
    let latency = (0_i32..).zip(shares).map(|(index, share)| {
        let bound = if index == 8 { f64::INFINITY } else { 2.5e-5 * 2_f64.powi(index) };
        (bound, place(share * requests) as u64)
    });
    run.server = Some(ServerSide {
        seconds: SECONDS,
        cpu_seconds: requests * 1.18e-5,
        calls: run.requests,
        latency: latency.collect(),
    });
}

/// A page like those of repeated experiments: a table beside published figures, and the two published charts.
fn answers() -> String {
    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(3));
    let published = [
        ("buy, one client", 464.93),
        ("buy, 10 clients", 263.20),
        ("buy, 100 clients", 259.60),
        ("search, one client", 499.25),
        ("search, 10 clients", 107.19),
    ];
    let columns = ["", "published", "classic design", "this server", "ratio"];
    let columns = columns.map(|name| Column { name: name.to_owned(), is_number: !name.is_empty() }).into();
    let mut rows = Vec::new();
    for (name, micros) in published {
        let (classic, ours) = (micros * random.ratio(0.1), micros / 30.0 * random.ratio(0.2));
        let cell = |key: &str, micros: f64| Value::figure(format!("{key}.{name}"), micros, format!("{micros:.1} µs"));
        let ratio = Value::text(format!("{:.1}×", classic / ours));
        rows.push(vec![
            Value::text(name),
            cell("published", micros),
            cell("classic", classic),
            cell("ours", ours),
            ratio,
        ]);
    }
    let table = Table { caption: "Mean time of a request".to_owned(), columns, rows };
    let clients = || (1..=20).map(f64::from);
    let curve = |alone: f64, many: f64| clients().map(move |clients| (clients, many + (alone - many) / clients));
    let around =
        |points: &[(f64, f64)]| Shape::ErrorBars(points.iter().map(|&(x, y)| (x, y * 0.93, y * 1.08)).collect());
    let [buys, searches] = [curve(465.0, 250.0).collect::<Vec<_>>(), curve(499.0, 66.0).collect()];
    let axes = (
        Axis::linear("clients", Unit::Count).from(0.0),
        Axis::linear("mean time of a request", Unit::Micros).from(0.0),
    );
    let mean = Chart::new(
        "Mean time by clients",
        "Bars are 95% confidence intervals over runs.",
        axes,
        [
            Series::new("", Colour::Series(0), around(&buys)),
            Series::new("", Colour::Series(1), around(&searches)),
            Series::new("buy", Colour::Series(0), Shape::Line(buys)),
            Series::new("search", Colour::Series(1), Shape::Line(searches)),
            Series::new("", Colour::Muted, Shape::ErrorBars(vec![(10.0, 240.0, 290.0)])),
        ],
    );
    let mean =
        mean.rules(vec![Rule { across: Across::Y, at: 263.2, label: "published, buy with 10 clients".to_owned() }]);
    let finish = (0..10_u8).map(|client| {
        let mut at = 0.0;
        let points = (0..500).map(|turn| {
            at += 2.6e-3 * random.ratio(0.4) * (1.0 + f64::from(client) / 40.0);
            (at, f64::from(turn))
        });
        Series::new(format!("client {client}"), Colour::Series(usize::from(client)), Shape::Points(points.collect()))
    });
    let axes = (
        Axis::linear("finished at", Unit::Seconds).from(0.0),
        Axis::linear("requests finished by this client", Unit::Count).from(0.0),
    );
    let finish = Chart::new("Finish time of each request", "A colour a client.", axes, finish);
    let rates: Vec<(f64, f64)> = clients().map(|clients| (clients, 9e4 * clients / (clients + 4.0))).collect();
    let (first, last) = (rates[0], rates[rates.len() - 1]);
    let throughput = Chart::new(
        "Throughput by clients",
        "An arrow is an interval that goes on beyond the chart.",
        (Axis::linear("clients", Unit::Count), Axis::linear("requests a second", Unit::Count).from(0.0)),
        [
            // Two runs: an interval may be a hundred times as wide as the curve is high.
            Series::new(
                "95% interval",
                Colour::Series(0),
                Shape::ErrorBars(vec![(first.0, 1.0, 9e6), (last.0, 0.0, 1e6)]),
            ),
            Series::new("measured", Colour::Series(0), Shape::Line(rates)),
        ],
    );
    let origin = "Measured 2026-09-21 13:46:40 UTC · quire-bench 0.1.0 · Example CPU @ 2.60GHz · 2 cores · Linux 6.1.0";
    Page::new("Four questions about a bookstore", "Made-up figures, to see how the page looks.", origin)
        .paragraph("How much does a purchase cost beside a search, and what do more clients change?")
        .table(table)
        .charts(vec![mean, finish, throughput])
        .finish()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and small")]
fn place(value: f64) -> usize {
    value as usize
}
