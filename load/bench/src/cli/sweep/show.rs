//! A sweep as text, CSV, JSON and a page.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde::Serialize;

use super::axis::Axis;
use super::model::{FIGURES, Point, Sweep};
use crate::report::page::{Banner, Page, Table, Tone, Value};
use crate::report::plot::{Across, Axis as Along, Chart, Colour, Rule, Series, Shape, Unit};
use crate::report::units::{self, real};
use crate::report::{self, origin};
use crate::stats::curve::{ACHIEVED_MIN, NoFit, P99_FACTOR_MAX, Refusal, Served, Usl};
use crate::stats::interval::Interval;
use crate::stats::metric::Metric;

/// The table and the findings.
pub(super) fn text(sweep: &Sweep) -> String {
    let mut text = format!("{}\n\n{}\n\n", sweep.load, table(sweep));
    for line in findings(sweep) {
        writeln!(text, "{line}").expect("a string takes everything");
    }
    text
}

/// The findings, one per line.
pub(super) fn findings(sweep: &Sweep) -> Vec<String> {
    let mut lines = Vec::new();
    if sweep.interrupted {
        lines.push("interrupted: points have fewer runs than asked for, or none".to_owned());
    }
    match sweep.axis {
        Axis::Clients => {
            lines.push(match sweep.knee() {
                Some(knee) => format!("knee (Kneedle): {knee} clients; more add little"),
                None => {
                    "knee (Kneedle): none seen; throughput rises evenly, hardly changes or has too few points".into()
                }
            });
            match sweep.usl() {
                Some(Ok(usl)) => lines.extend(law(&usl)),
                Some(Err(no_fit)) => lines.push(format!("universal scalability law: {no_fit}")),
                None => {}
            }
        }
        Axis::Rate => lines.extend(sweep.served().map(|served| rates(&served))),
    }
    let invalid = sweep.measured().filter(|point| point.invalid().is_some()).count();
    if invalid > 0 {
        let left_out = if sweep.axis == Axis::Clients { "; the knee and the law leave them out" } else { "" };
        lines.push(format!("{invalid} of {} points are INVALID{left_out}", sweep.measured().count()));
    }
    lines
}

fn law(usl: &Usl) -> Vec<String> {
    let interval = |name: &str, interval: Interval| {
        format!("  {name} {} ({} to {})", short(interval.estimate), short(interval.low), short(interval.high))
    };
    let peak = usl.peak.map_or_else(
        || "  no peak: no cost of coherence is seen".to_owned(),
        |peak| {
            let low = peak.low.map_or_else(|| "unknown".to_owned(), |low| format!("{low:.1}"));
            let high = peak.high.map_or_else(|| "no upper limit".to_owned(), |high| format!("{high:.1}"));
            let throughput = Metric::Rate.show(usl.throughput(peak.clients));
            format!("  peak {throughput} at {:.1} clients ({low} to {high})", peak.clients)
        },
    );
    vec![
        format!(
            "universal scalability law, with {}% intervals (R² {:.4}, points {:.1}% from the curve):",
            usl.confidence * 100.0,
            usl.r_squared,
            usl.deviation * 100.0
        ),
        interval("λ, one client's requests a second:", usl.lambda),
        interval("σ, contention:", usl.sigma),
        interval("κ, coherence:", usl.kappa),
        peak,
    ]
}

/// Three digits, with an exponent where a plain number would be all zeros.
fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.001 { format!("{value:.2e}") } else { units::number(value) }
}

fn rates(served: &Served) -> String {
    let last = served
        .last
        .map_or_else(|| "no rate was served".to_owned(), |last| format!("served up to {}", Metric::Rate.show(last)));
    let why = match served.first_refused {
        None => "; every rate was served, so the limit is higher".to_owned(),
        Some((rate, Refusal::NotReached)) => {
            format!("; at {} less than {}% of it was reached", Metric::Rate.show(rate), ACHIEVED_MIN * 100.0)
        }
        Some((rate, Refusal::TooSlow)) => {
            format!(
                "; at {} the p99 was more than {P99_FACTOR_MAX} times that of the lowest rate",
                Metric::Rate.show(rate)
            )
        }
    };
    last + &why
}

fn table(sweep: &Sweep) -> String {
    let first = if sweep.axis == Axis::Clients { "clients" } else { "rate asked" };
    let heads = [first, "runs", "rate", "95% interval", "p50", "p90", "p99", "p99.9", "mean", "errors", ""];
    let rows = sweep.points.iter().map(|point| {
        let show = |metric: Metric| {
            let figure = point.figure(metric);
            if figure.is_nan() { "-".to_owned() } else { metric.show(figure) }
        };
        let interval = point.interval(Metric::Rate).map_or_else(
            || "none".to_owned(),
            |interval| format!("{} to {}", units::number(interval.low), units::number(interval.high)),
        );
        let [rate, p50, p90, p99, p999, mean, errors] =
            [Metric::Rate, Metric::P50, Metric::P90, Metric::P99, Metric::P999, Metric::Mean, Metric::Errors].map(show);
        let invalid = point.invalid().map_or_else(String::new, |reason| format!("INVALID: {reason}"));
        let runs = point.runs.len().to_string();
        [point.at.to_string(), runs, rate, interval, p50, p90, p99, p999, mean, errors, invalid]
    });
    report::table::table(&heads, rows)
}

/// Saved form: the sweep and its findings.
#[derive(Serialize)]
struct Saved<'a> {
    #[serde(flatten)]
    sweep: &'a Sweep,
    knee: Option<f64>,
    usl: Option<Usl>,
    /// Reason that the law could not be fitted.
    usl_missing: Option<String>,
    served: Option<Served>,
}

pub(super) fn json(sweep: &Sweep) -> anyhow::Result<String> {
    let (usl, usl_missing) = match sweep.usl() {
        Some(Ok(usl)) => (Some(usl), None),
        Some(Err(no_fit)) => (None, Some(NoFit::to_string(&no_fit))),
        None => (None, None),
    };
    let saved = Saved { sweep, knee: sweep.knee(), usl, usl_missing, served: sweep.served() };
    Ok(serde_json::to_string_pretty(&saved).context("cannot write the sweep as JSON")? + "\n")
}

/// A row per point: the point, its runs, each figure with its interval, and its validity.
pub(super) fn csv(sweep: &Sweep) -> anyhow::Result<String> {
    let first = if sweep.axis == Axis::Clients { "clients" } else { "rate_asked" };
    let figures: Vec<[String; 3]> =
        FIGURES.map(|metric| ["", "_low", "_high"].map(|end| format!("{}{end}", metric.key()))).into();
    let heads = [first, "runs"].into_iter().chain(figures.iter().flatten().map(String::as_str)).chain(["invalid"]);
    report::table::csv(heads, sweep.points.iter().map(row))
}

fn row(point: &Point) -> Vec<String> {
    let mut row = vec![point.at.to_string(), point.runs.len().to_string()];
    for metric in FIGURES {
        let figure = point.figure(metric);
        row.push(if figure.is_nan() { String::new() } else { figure.to_string() });
        let ends = point
            .interval(metric)
            .map_or_else(Default::default, |interval| [interval.low, interval.high].map(|end| end.to_string()));
        row.extend::<[String; 2]>(ends);
    }
    row.push(point.invalid().unwrap_or_default().to_owned());
    row
}

/// Number of points at which the fitted law is drawn.
const LAW_PLACES: usize = 200;

/// Number of figures in the table, from the first.
const COLUMNS: usize = 7;

pub(super) fn page(sweep: &Sweep) -> String {
    let title = if sweep.axis == Axis::Clients { "Sweep over clients" } else { "Sweep over rates" };
    let mut page = Page::new(title, sweep.load.clone(), origin::here_and_now());
    if sweep.is_invalid() {
        let reasons = sweep.measured().filter_map(|point| Some(format!("{}: {}", point.at, point.invalid()?)));
        let words = ["invalid", "INVALID", "Do not trust some of these figures:"];
        page = page.banner(Banner::new(Tone::Bad, words, reasons.collect()));
    }
    page = page.charts(vec![throughput(sweep), times(sweep)]).heading("What the curve says");
    for line in findings(sweep) {
        page = page.paragraph(line);
    }
    page.table(page_table(sweep)).finish()
}

fn along(sweep: &Sweep) -> Along {
    let label = if sweep.axis == Axis::Clients { "clients" } else { "requests a second asked for" };
    Along::linear(label, Unit::Count)
}

fn throughput(sweep: &Sweep) -> Chart {
    let figure = |point: &Point| (point.at, point.figure(Metric::Rate));
    let mut series = vec![
        Series::new("95% interval", Colour::Series(0), Shape::ErrorBars(intervals(sweep, Metric::Rate))),
        Series::new("measured", Colour::Series(0), Shape::Points(sweep.measured().map(figure).collect())),
    ];
    let mut rules = Vec::new();
    let mut rule = |at, label: &str| rules.push(Rule { across: Across::X, at, label: label.to_owned() });
    if let Some(Ok(usl)) = sweep.usl() {
        let law = (places(sweep)).map(|clients| (clients, usl.throughput(clients))).collect();
        series.insert(0, Series::new("universal scalability law", Colour::Series(1), Shape::Line(law)));
    }
    if let Some(knee) = sweep.knee() {
        rule(knee, "knee");
    }
    if let Some(served) = sweep.served() {
        let asked = sweep.measured().map(|point| (point.at, point.at)).collect();
        series.insert(0, Series::new("asked for", Colour::Muted, Shape::Line(asked)));
        if let Some(last) = served.last {
            rule(last, "last served");
        }
    }
    let y = Along::linear("requests a second", Unit::Count).from(0.0);
    let caption = "Geometric mean over runs. An arrow is an interval that goes on beyond the chart.";
    Chart::new("Throughput", caption, (along(sweep), y), series).rules(rules)
}

fn times(sweep: &Sweep) -> Chart {
    let lines = [(Metric::P50, "p50"), (Metric::P99, "p99"), (Metric::Mean, "mean")]
        .map(|(metric, name)| (name, sweep.measured().map(|point| (point.at, point.figure(metric))).collect()));
    let axes = (along(sweep), Along::log("response time", Unit::Micros));
    Chart::of_lines("Response time", "Geometric mean over runs.", axes, lines)
}

fn intervals(sweep: &Sweep, metric: Metric) -> Vec<(f64, f64, f64)> {
    let bar = |point: &Point| point.interval(metric).map(|interval| (point.at, interval.low, interval.high));
    sweep.measured().filter_map(bar).collect()
}

/// Equally spaced, from the first measured point to the last.
fn places(sweep: &Sweep) -> impl Iterator<Item = f64> {
    let ends = |point: Option<&Point>| point.map_or(1.0, |point| point.at);
    let (first, last) = (ends(sweep.measured().next()), ends(sweep.measured().last()));
    (0..=LAW_PLACES).map(move |place| first + (last - first) * real(place) / real(LAW_PLACES))
}

fn page_table(sweep: &Sweep) -> Table {
    let first = if sweep.axis == Axis::Clients { "clients" } else { "rate asked" };
    let heads =
        [first, "runs"].into_iter().chain(FIGURES[..COLUMNS].iter().map(|metric| metric.name())).chain(["INVALID"]);
    let rows = sweep.points.iter().map(|point| {
        let key = |name: &str| format!("{name}@{}", point.at);
        let figures = FIGURES[..COLUMNS].iter().map(|&metric| {
            let figure = point.figure(metric);
            if figure.is_nan() {
                Value::text("–")
            } else {
                Value::figure(key(metric.key()), figure, metric.show(figure))
            }
        });
        let leading = [Value::text(point.at.to_string()), Value::text(point.runs.len().to_string())];
        let invalid = Value::text(point.invalid().unwrap_or_default()).bad(point.invalid().is_some());
        leading.into_iter().chain(figures).chain([invalid]).collect()
    });
    Table::of_numbers("Points", heads, rows)
}
