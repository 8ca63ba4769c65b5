//! One page that shows a measurement, complete in itself.
//!
//! Says which figures stand where. Must not know how blocks look or charts are drawn.

use std::time::{Duration, UNIX_EPOCH};

use super::charts;
use super::figures::{self, FIGURES, Range, merged};
use super::model::{Distribution, Load, Machine, Report, Run};
use super::page::{Banner, Card, Page, Table, Tone, Value};
use super::units;

/// Endings that are listed, the most frequent first; the others are counted together.
const ENDINGS_SHOWN_MAX: usize = 40;

/// Runs that are listed one by one.
const RUNS_SHOWN_MAX: usize = 200;

/// The percentiles of a table of times.
const PERCENTILES: [(&str, &str, f64); 5] = [
    ("p50", "p50_us", 0.5),
    ("p90", "p90_us", 0.9),
    ("p99", "p99_us", 0.99),
    ("p99.9", "p999_us", 0.999),
    ("p99.99", "p9999_us", 0.9999),
];

/// The page.
pub fn page(report: &Report) -> String {
    let Report { load, runs, .. } = report;
    let title = if load.what.is_empty() { load.target.clone() } else { load.what.clone() };
    let mut page = Page::new(title).lead(lead(report));
    for banner in banners(runs) {
        page = page.banner(banner);
    }
    page = page.cards(cards(report));
    let mut figures = charts::all(runs);
    if let Some(rate) = load.rate {
        charts::mark_rate(&mut figures, rate);
    }
    if !figures.is_empty() {
        page = page.charts(figures);
    }
    if runs.len() > 1 {
        page = page.heading("Runs").table(table_of_runs(runs));
    }
    page.heading("Figures")
        .table(times(runs))
        .tables(vec![endings(runs), resources(runs)])
        .heading("Load and machine")
        .tables(vec![settings(load), machine(&report.machine, report)])
        .footer(format!("Measured and drawn by {}.", report.tool))
        .finish()
}

fn lead(report: &Report) -> String {
    let Report { load, runs, .. } = report;
    let pace = match (load.pace.as_str(), load.rate) {
        ("closed", _) | (_, None) => format!("{} loop", load.pace),
        (pace, Some(rate)) => format!("open loop, {pace} arrivals, {}", figures::rate(rate)),
    };
    let many = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let mut parts = vec![
        format!("{} {}", load.protocol, load.target),
        pace,
        format!("{} with {} in flight each", many(load.connections, "connection"), load.in_flight),
        many(load.workers, "worker"),
    ];
    let seconds: f64 = runs.iter().map(|run| run.seconds).sum();
    parts.push(format!("{} measured in {}", units::micros(seconds * 1e6), many(runs.len(), "run")));
    if let Some(run) = runs.first() {
        parts.push(moment(run.began_unix_ms));
    }
    parts.join(" · ")
}

fn moment(unix_ms: u64) -> String {
    // Beyond the year 9999 there is no such text, and no run began there.
    let seconds = (unix_ms / 1000).min(253_402_300_799);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds))
        .to_string()
        .replace('T', " ")
        .replace('Z', " UTC")
}

/// What is to be read before any figure.
fn banners(runs: &[Run]) -> Vec<Banner> {
    let several = runs.len() > 1;
    let of_run =
        |index: usize, words: &str| if several { format!("run {}: {words}", index + 1) } else { words.to_owned() };
    let mut banners = Vec::new();
    let reasons: Vec<String> = runs
        .iter()
        .enumerate()
        .flat_map(|(index, run)| run.verdict.reasons.iter().map(move |reason| of_run(index, reason)))
        .collect();
    if !reasons.is_empty() {
        let words = "These figures cannot be believed:".to_owned();
        banners.push(Banner { tone: Tone::Bad, key: "invalid".into(), title: "INVALID".into(), words, reasons });
    }
    let cut: Vec<String> =
        runs.iter().enumerate().filter(|(_, run)| run.interrupted).map(|(index, _)| (index + 1).to_string()).collect();
    if !cut.is_empty() {
        let words = if several {
            format!("Ended early from outside: run {}.", cut.join(", "))
        } else {
            "Ended early from outside; the figures are of the time until then.".to_owned()
        };
        banners.push(Banner {
            tone: Tone::Warning,
            key: "interrupted".into(),
            title: "INTERRUPTED".into(),
            words,
            ..Banner::default()
        });
    }
    if runs.iter().all(|run| run.requests == 0) {
        let words = "No request ended within the measured time.".to_owned();
        banners.push(Banner {
            tone: Tone::Warning,
            key: "empty".into(),
            title: "NOTHING MEASURED".into(),
            words,
            ..Banner::default()
        });
    }
    if banners.is_empty() {
        let words = "No check of the load generator speaks against these figures.".to_owned();
        banners.push(Banner {
            tone: Tone::Good,
            key: "valid".into(),
            title: "VALID".into(),
            words,
            ..Banner::default()
        });
    }
    banners
}

fn cards(report: &Report) -> Vec<Card> {
    let runs = &report.runs;
    let cards = FIGURES.iter().filter_map(|figure| {
        let range = figures::range(figure, runs)?;
        let tone = match figure.key {
            "rate" | "p99_us" => Tone::Main,
            "errors" if range.high > 0.0 => Tone::Bad,
            _ => Tone::Plain,
        };
        let value = Value::figure(figure.key, range.median, (figure.show)(range.median));
        Some(Card { name: figure.name.to_owned(), value, note: note(report, figure, range), tone })
    });
    cards.collect()
}

/// What a headline figure is to be seen beside.
fn note(report: &Report, figure: &figures::Figure, range: Range) -> String {
    if range.runs > 1 {
        return format!("{} to {}", (figure.show)(range.low), (figure.show)(range.high));
    }
    let (requests, errors) =
        report.runs.iter().fold((0, 0), |(requests, errors), run| (requests + run.requests, errors + run.errors));
    match (figure.key, report.load.rate) {
        ("rate", Some(rate)) => format!("of {} asked for", figures::rate(rate)),
        ("rate", None) => format!("{} requests", units::count(requests)),
        ("errors", _) => format!("{} of {}", units::percent(units::share(errors, requests)), units::count(requests)),
        ("client_busy_max", _) => "of one core".to_owned(),
        _ => String::new(),
    }
}

fn table_of_runs(runs: &[Run]) -> Table {
    let heads = ["run", "began", "length", "requests", "errors", "rate", "p50", "p99", "p99.9", "max", "verdict"];
    let mut table = Table::of_numbers("Each run", heads);
    for (index, run) in runs.iter().take(RUNS_SHOWN_MAX).enumerate() {
        let number = index + 1;
        let figure = |key: &str| {
            let cell = FIGURES
                .iter()
                .find(|figure| figure.key == key)
                .and_then(|figure| Some((figure.show, (figure.of)(run)?)));
            cell.map_or_else(
                || Value::text("–"),
                |(show, value)| Value::figure(format!("run{number}.{key}"), value, show(value)),
            )
        };
        let verdict = match (run.verdict.is_valid(), run.interrupted) {
            (false, _) => "INVALID",
            (true, true) => "interrupted",
            (true, false) => "valid",
        };
        table = table.row([
            Value::text(number.to_string()),
            Value::text(moment(run.began_unix_ms)),
            Value::text(units::micros(run.seconds * 1e6)),
            Value::figure(format!("run{number}.requests"), run.requests, units::count(run.requests)),
            figure("errors").bad(run.errors > 0),
            figure("rate"),
            figure("p50_us"),
            figure("p99_us"),
            figure("p999_us"),
            figure("max_us"),
            Value::figure(format!("run{number}.verdict"), verdict, verdict).bad(!run.verdict.is_valid()),
        ]);
    }
    table
}

fn times(runs: &[Run]) -> Table {
    let caption = if runs.len() > 1 { "Times of the requests of all runs together" } else { "Times of the requests" };
    let heads = ["", "count", "mean"].into_iter().chain(PERCENTILES.map(|percentile| percentile.0)).chain(["max"]);
    let mut table = Table::of_numbers(caption, heads);
    let parts: [(&str, &str, fn(&Run) -> &Distribution); 4] = [
        ("response", "response: due to done", |run| &run.response),
        ("service", "service: sent to done", |run| &run.service),
        ("lag", "send lag: due to sent", |run| &run.lag),
        ("first_byte", "first byte: sent to first byte", |run| &run.first_byte),
    ];
    for (key, name, of) in parts {
        let all = merged(runs, of);
        if all.count() == 0 {
            continue;
        }
        let time = |part: &str, value: f64| Value::figure(format!("{key}.{part}"), value, units::micros(value));
        let mut row = vec![
            Value::text(name),
            Value::figure(format!("{key}.count"), all.count(), units::count(all.count())),
            time("mean_us", all.mean_us()),
        ];
        row.extend(PERCENTILES.map(|(_, part, share)| time(part, all.quantile_us(share))));
        row.push(time("max_us", all.max_us()));
        table = table.row(row);
    }
    table
}

fn endings(runs: &[Run]) -> Table {
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for (ending, count) in runs.iter().flat_map(|run| &run.endings) {
        *counts.entry(ending).or_default() += count;
    }
    let total = counts.values().sum();
    let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
    counts.sort_by(|one, other| other.1.cmp(&one.1));
    let others: u64 = counts.iter().skip(ENDINGS_SHOWN_MAX).map(|(_, count)| count).sum();
    let shown = counts.iter().copied().take(ENDINGS_SHOWN_MAX).chain((others > 0).then_some(("(others)", others)));
    shown.fold(Table::of_numbers("How requests ended", ["ending", "requests", "share"]), |table, (ending, count)| {
        table.row([
            Value::text(ending),
            Value::figure(format!("ending:{ending}"), count, units::count(count)),
            Value::text(units::percent(units::share(count, total))),
        ])
    })
}

fn resources(runs: &[Run]) -> Table {
    let sum = |of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>();
    let seconds = sum(|run| run.seconds);
    let mut table = Table::of_numbers("Bytes and CPU", ["", "in all", "a second"]);
    let traffic: [(&str, &str, fn(&Run) -> f64); 2] = [
        ("sent_bytes", "sent", |run| units::float(run.sent_bytes)),
        ("received_bytes", "received", |run| units::float(run.received_bytes)),
    ];
    for (key, name, of) in traffic {
        let all = sum(of);
        let a_second = if seconds > 0.0 { format!("{}/s", units::bytes(all / seconds)) } else { "–".to_owned() };
        table = table.row([Value::text(name), Value::figure(key, all, units::bytes(all)), Value::text(a_second)]);
    }
    let server = |run: &Run| run.server.as_ref().map_or(0.0, |server| server.cpu_seconds);
    let cpu: [(&str, &str, f64); 2] = [
        ("client_cpu_seconds", "client CPU", sum(|run| run.client_cpu_seconds)),
        ("server_cpu_seconds", "server CPU", sum(server)),
    ];
    for (key, name, all) in cpu.into_iter().filter(|(key, _, all)| *key == "client_cpu_seconds" || *all > 0.0) {
        let cores = if seconds > 0.0 { format!("{} cores", units::number(all / seconds)) } else { "–".to_owned() };
        table = table.row([Value::text(name), Value::figure(key, all, units::micros(all * 1e6)), Value::text(cores)]);
    }
    table
}

fn settings(load: &Load) -> Table {
    let fixed = [
        ("protocol", load.protocol.clone()),
        ("target", load.target.clone()),
        ("request", load.what.clone()),
        ("pace", load.pace.clone()),
        ("rate asked for", load.rate.map(figures::rate).unwrap_or_default()),
        ("connections", load.connections.to_string()),
        ("in flight on each", load.in_flight.to_string()),
        ("workers", load.workers.to_string()),
    ];
    let fixed = fixed.into_iter().filter(|(_, words)| !words.is_empty()).map(|(name, words)| (name.to_owned(), words));
    Table::of_facts("Load", fixed.chain(load.settings.iter().map(|(flag, value)| (format!("--{flag}"), value.clone()))))
}

fn machine(machine: &Machine, report: &Report) -> Table {
    let facts = [
        ("processor", machine.cpu.clone()),
        ("cores", machine.cores.to_string()),
        ("system", machine.system.clone()),
        ("tool", report.tool.clone()),
        ("format", report.format.clone()),
    ];
    Table::of_facts("Machine and tool", facts.map(|(name, words)| (name.to_owned(), words)))
}
