//! A sweep as a self-contained HTML page.

use super::axis::Axis;
use super::model::{FIGURES, Point, Sweep};
use super::show;
use crate::report::origin;
use crate::report::page::{Banner, Page, Table, Tone, Value};
use crate::report::plot::{Across, Axis as Along, Chart, Colour, Rule, Series, Shape, Unit};
use crate::report::units::real;
use crate::stats::metric::Metric;

/// Number of points at which the fitted law is drawn.
const LAW_PLACES: usize = 200;

/// Number of figures in the table, from the first.
const COLUMNS: usize = 7;

pub(super) fn page(sweep: &Sweep) -> String {
    let title = if sweep.axis == Axis::Clients { "Sweep over clients" } else { "Sweep over rates" };
    let mut page = Page::new(title).lead(sweep.load.clone()).origin(origin::here_and_now());
    if sweep.is_invalid() {
        let reasons = sweep.measured().filter_map(|point| Some(format!("{}: {}", point.at, point.invalid()?)));
        let words = ["invalid", "INVALID", "Do not trust some of these figures:"];
        page = page.banner(Banner::new(Tone::Bad, words, reasons.collect()));
    }
    page = page.charts(vec![throughput(sweep), times(sweep)]).heading("What the curve says");
    for line in show::findings(sweep) {
        page = page.paragraph(line);
    }
    page.table(table(sweep)).finish()
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

fn table(sweep: &Sweep) -> Table {
    let first = if sweep.axis == Axis::Clients { "clients" } else { "rate asked" };
    let heads =
        [first, "runs"].into_iter().chain(FIGURES[..COLUMNS].iter().map(|metric| metric.name())).chain(["INVALID"]);
    sweep.points.iter().fold(Table::of_numbers("Points", heads), |table, point| {
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
        table.row(leading.into_iter().chain(figures).chain([invalid]))
    })
}
