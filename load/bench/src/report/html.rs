//! A measurement as a self-contained page: selects and places its figures.

use super::charts;
use super::figures::{self, FIGURES, Range, TIMES, merged};
use super::origin::{self, moment};
use super::page::{Banner, Card, Page, Table, Tone, Value};
use super::units;
use crate::measurement::{Load, Machine, Report, Run, ServerSide};

/// Maximum endings listed, the most frequent first; the others are counted together.
const ENDINGS_SHOWN_MAX: usize = 40;

/// Maximum runs listed one by one.
const RUNS_SHOWN_MAX: usize = 200;

/// Percentiles of a table of times.
const PERCENTILES: [(&str, &str, f64); 5] = [
    ("p50", "p50_us", 0.5),
    ("p90", "p90_us", 0.9),
    ("p99", "p99_us", 0.99),
    ("p99.9", "p999_us", 0.999),
    ("p99.99", "p9999_us", 0.9999),
];

pub fn page(report: &Report) -> String {
    let Report { load, runs, .. } = report;
    let mut page = Page::new(load.title(), lead(report), origin(report));
    for banner in banners(runs) {
        page = page.banner(banner);
    }
    if runs.len() > 1 {
        let runs = runs.len();
        page = page.paragraph(format!(
            "Each figure is the median of {runs} runs, and below it are the smallest and the largest."
        ));
    }
    page = page.cards(cards(report));
    let figures = charts::all(load, runs);
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
        (pace, Some(rate)) => format!("open loop, {pace} arrivals, {}", units::rate(rate)),
    };
    let many = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let mut parts = vec![
        format!("{} {}", load.protocol, load.target),
        pace,
        format!(
            "{} with {}{} in flight each",
            many(load.connections, "connection"),
            if load.is_open() { "at most " } else { "" },
            load.in_flight
        ),
        many(load.workers, "worker"),
    ];
    let seconds: f64 = runs.iter().map(|run| run.seconds).sum();
    parts.push(format!("{} measured in {}", units::micros(seconds * 1e6), many(runs.len(), "run")));
    parts.join(" · ")
}

fn origin(report: &Report) -> String {
    let began = report.runs.first().map(|run| moment(run.began_unix_ms));
    origin::line(began, &report.tool, &report.machine)
}

/// Verdict and warnings, shown before the figures.
fn banners(runs: &[Run]) -> Vec<Banner> {
    let several = runs.len() > 1;
    let of_all = |of: fn(&Run) -> &Vec<String>| -> Vec<String> {
        let all = runs.iter().enumerate().flat_map(|(index, run)| of(run).iter().map(move |words| (index + 1, words)));
        all.map(|(run, words)| if several { format!("run {run}: {words}") } else { words.clone() }).collect()
    };
    let (reasons, doubts) = (of_all(|run| &run.verdict.reasons), of_all(|run| &run.verdict.doubts));
    let mut banners = Vec::new();
    if !reasons.is_empty() {
        banners.push(Banner::new(Tone::Bad, ["invalid", "INVALID", "Do not trust these figures:"], reasons));
    }
    if !doubts.is_empty() {
        let words = ["doubtful", "DOUBTFUL", "Read these figures with care:"];
        banners.push(Banner::new(Tone::Warning, words, doubts));
    }
    let cut = runs.iter().enumerate().filter(|(_, run)| run.interrupted).map(|(index, _)| (index + 1).to_string());
    let cut: Vec<String> = cut.collect();
    if !cut.is_empty() {
        let words = if several {
            format!("Interrupted: run {}.", cut.join(", "))
        } else {
            "The run was interrupted; the figures are of the time until then.".to_owned()
        };
        banners.push(Banner::new(Tone::Warning, ["interrupted", "INTERRUPTED", &words], Vec::new()));
    }
    if runs.iter().all(|run| run.requests == 0) {
        let words = ["empty", "NOTHING MEASURED", "No request was made within the measured time."];
        banners.push(Banner::new(Tone::Warning, words, Vec::new()));
    }
    if banners.is_empty() {
        let words = ["valid", "VALID", "The load generator found nothing wrong with this measurement."];
        banners.push(Banner::new(Tone::Good, words, Vec::new()));
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

/// Note beside a headline figure, such as its range over runs.
fn note(report: &Report, figure: &figures::Figure, range: Range) -> String {
    if range.runs > 1 {
        return format!("{} to {}", (figure.show)(range.low), (figure.show)(range.high));
    }
    let (requests, errors) =
        report.runs.iter().fold((0, 0), |(requests, errors), run| (requests + run.requests, errors + run.errors));
    match (figure.key, report.load.rate) {
        ("rate", Some(rate)) => format!("of {} asked for", units::rate(rate)),
        ("rate", None) => format!("{} requests", units::count(requests)),
        ("errors", _) => format!("{} of {}", units::percent(units::share(errors, requests)), units::count(requests)),
        ("client_busy_max", _) => "of one core".to_owned(),
        _ => String::new(),
    }
}

fn table_of_runs(runs: &[Run]) -> Table {
    let heads = ["run", "began", "length", "requests", "errors", "rate", "p50", "p99", "p99.9", "max", "verdict"];
    let rows = runs.iter().take(RUNS_SHOWN_MAX).enumerate().map(|(index, run)| {
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
        let verdict = match (run.verdict.is_valid(), run.interrupted, run.verdict.doubts.is_empty()) {
            (false, ..) => "INVALID",
            (true, true, _) => "interrupted",
            (true, false, false) => "doubtful",
            (true, false, true) => "valid",
        };
        vec![
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
        ]
    });
    Table::of_numbers("Each run", heads, rows)
}

fn times(runs: &[Run]) -> Table {
    let caption = if runs.len() > 1 { "Times of the requests of all runs together" } else { "Times of the requests" };
    let heads = ["", "count", "mean"].into_iter().chain(PERCENTILES.map(|percentile| percentile.0)).chain(["max"]);
    let rows = TIMES.into_iter().filter_map(|figures::Times { key, name, what, of }| {
        let all = merged(runs, of);
        let time = |part: &str, value: f64| Value::figure(format!("{key}.{part}"), value, units::micros(value));
        let mut row = vec![
            Value::text(format!("{name}: {what}")),
            Value::figure(format!("{key}.count"), all.count(), units::count(all.count())),
            time("mean_us", all.mean_us()),
        ];
        row.extend(PERCENTILES.map(|(_, part, share)| time(part, all.quantile_us(share))));
        row.push(time("max_us", all.max_us()));
        (all.count() > 0).then_some(row)
    });
    Table::of_numbers(caption, heads, rows)
}

fn endings(runs: &[Run]) -> Table {
    let rows = figures::endings(runs, ENDINGS_SHOWN_MAX).into_iter();
    let rows = rows.map(|(ending, count, share)| {
        let requests = Value::figure(format!("ending:{ending}"), count, units::count(count));
        vec![Value::text(ending), requests, Value::text(units::percent(share))]
    });
    Table::of_numbers("How requests ended", ["ending", "requests", "share"], rows)
}

fn resources(runs: &[Run]) -> Table {
    let sum = |of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>();
    let seconds = sum(|run| run.seconds);
    let traffic = [
        ("sent_bytes", "sent", sum(|run| units::float(run.sent_bytes))),
        ("received_bytes", "received", sum(|run| units::float(run.received_bytes))),
    ];
    let traffic = traffic.map(|(key, name, all)| {
        let a_second = if seconds > 0.0 { format!("{}/s", units::bytes(all / seconds)) } else { "–".to_owned() };
        vec![Value::text(name), Value::figure(key, all, units::bytes(all)), Value::text(a_second)]
    });
    let server = |of: fn(&ServerSide) -> f64| runs.iter().filter_map(|run| run.server.as_ref()).map(of).sum::<f64>();
    let cpu = |key, name, all: f64, seconds: f64| {
        let cores = if seconds > 0.0 { format!("{} cores", units::number(all / seconds)) } else { "–".to_owned() };
        vec![Value::text(name), Value::figure(key, all, units::micros(all * 1e6)), Value::text(cores)]
    };
    let client = cpu("client_cpu_seconds", "client CPU", sum(|run| run.client_cpu_seconds), seconds);
    let server_seconds = server(|side| side.cpu_seconds);
    // Its readings cover a time of their own.
    let server = (server_seconds > 0.0)
        .then(|| cpu("server_cpu_seconds", "server CPU", server_seconds, server(|side| side.seconds)));
    let rows = traffic.into_iter().chain([client]).chain(server);
    Table::of_numbers("Bytes and CPU", ["", "in all", "a second"], rows)
}

fn settings(load: &Load) -> Table {
    let fixed = [
        ("protocol", load.protocol.clone()),
        ("target", load.target.clone()),
        ("request", load.what.clone()),
        ("pace", load.pace.clone()),
        ("rate asked for", load.rate.map(units::rate).unwrap_or_default()),
        ("connections", load.connections.to_string()),
        (if load.is_open() { "in flight on each, at most" } else { "in flight on each" }, load.in_flight.to_string()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Verdict;
    use crate::report::fixtures;

    /// Value on the page under this key.
    fn figure<'a>(page: &'a str, key: &str) -> Option<&'a str> {
        let (before, _) = page.split_once(&format!("\" data-figure=\"{key}\""))?;
        Some(before.rsplit_once("value=\"").expect("a figure has a value").1)
    }

    #[test]
    fn figures_of_a_run_are_on_the_page_with_all_their_digits() {
        let run = fixtures::busy();
        let page = page(&fixtures::report(vec![run.clone()]));
        assert_eq!(figure(&page, "rate"), Some("500"));
        assert_eq!(figure(&page, "p99_us"), Some(run.response.quantile_us(0.99).to_string().as_str()));
        assert_eq!(figure(&page, "service.max_us"), Some(run.service.max_us().to_string().as_str()));
        assert_eq!(figure(&page, "ending:OK"), Some("1000"));
        assert_eq!(figure(&page, "server_cpu_us"), Some("10"));
        assert!(page.contains("data-verdict=\"valid\""));
        assert!(!page.contains("Send lag"), "a closed loop has none");
    }

    #[test]
    fn runs_at_the_ends_of_what_can_happen_have_a_page() {
        let mut huge = fixtures::busy();
        huge.rate = f64::MAX;
        huge.requests = u64::MAX;
        huge.sent_bytes = u64::MAX;
        huge.client_cpu_seconds = f64::MAX;
        huge.began_unix_ms = u64::MAX;
        huge.response.histogram.record(crate::measurement::TIME_NS_MAX).expect("in range");
        huge.finishes[0].client = u32::MAX;
        huge.finishes[1].response_us = f64::INFINITY;
        huge.series[0].seconds = 0.0;
        for runs in [
            vec![],
            vec![fixtures::empty()],
            vec![fixtures::one()],
            vec![fixtures::all_errors()],
            vec![huge],
            vec![fixtures::empty(), fixtures::busy()],
        ] {
            let page = page(&fixtures::report(runs));
            assert!(page.ends_with("</html>\n") || page.ends_with("</html>"));
            assert!(!page.contains("NaN"), "{page}");
        }
    }

    #[test]
    fn a_run_that_measured_nothing_says_so_and_shows_no_times() {
        let page = page(&fixtures::report(vec![fixtures::empty()]));
        assert!(page.contains("data-verdict=\"empty\""));
        assert!(!page.contains("data-verdict=\"valid\""));
        assert_eq!(figure(&page, "p99_us"), None);
        assert_eq!(figure(&page, "rate"), Some("0"));
    }

    #[test]
    fn an_invalid_run_says_so_first_with_every_reason() {
        let mut run = fixtures::busy();
        run.verdict = Verdict {
            reasons: vec!["worker 1 was busy 99% of its time".into(), "the send lag grew".into()],
            ..Verdict::default()
        };
        run.interrupted = true;
        let page = page(&fixtures::report(vec![run]));
        let (invalid, cards) =
            (page.find("data-verdict=\"invalid\"").expect("said"), page.find("class=\"cards\"").expect("there"));
        assert!(invalid < cards);
        assert!(page.contains("<li>worker 1 was busy 99% of its time</li><li>the send lag grew</li>"));
        assert!(page.contains("data-verdict=\"interrupted\""));
        assert!(!page.contains("data-verdict=\"valid\""));
    }

    #[test]
    fn several_runs_show_the_median_the_range_and_each_run() {
        let runs = [100.0, 300.0, 200.0].map(|rate| Run { rate, ..fixtures::busy() });
        let page = page(&fixtures::report(runs.into()));
        assert_eq!(figure(&page, "rate"), Some("200"));
        assert!(page.contains("100 /s to 300 /s"));
        assert_eq!(figure(&page, "run2.rate"), Some("300"));
        assert_eq!(figure(&page, "response.count"), Some("3000"));
    }

    #[test]
    fn endings_beyond_the_limit_are_counted_together() {
        let mut run = fixtures::busy();
        run.endings = (0..ENDINGS_SHOWN_MAX + 10).map(|number| (format!("status {number:03}"), 5)).collect();
        let page = page(&fixtures::report(vec![run]));
        assert_eq!(figure(&page, "ending:(others)"), Some("50"));
        assert_eq!(page.matches("ending:status").count(), ENDINGS_SHOWN_MAX);
    }
}
