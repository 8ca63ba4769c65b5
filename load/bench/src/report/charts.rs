//! The charts of a measurement: their data, axes and ranges.

use super::figures::{self, merged};
use super::plot::{Across, Axis, Bar, Chart, Colour, Rule, Series, Shape, Unit};
use super::units;
use crate::measurement::{Distribution, Interval, Load, Run};

/// Number of bars of a distribution.
const BARS: usize = 56;

/// Points of a percentile curve per decade.
const POINTS_A_DECADE: u32 = 40;

/// Maximum clients or connections with a row each; with more, height shows only the number.
const ROWS_MAX: u32 = 24;

/// All charts that the runs have data for.
pub(crate) fn all(load: &Load, runs: &[Run]) -> Vec<Chart> {
    let charts = [
        distribution(runs),
        percentiles(runs),
        percentiles_over_time(runs),
        throughput(load.rate, runs),
        finishes(load, runs),
        lag(runs),
        server(runs),
    ];
    charts.into_iter().filter(|chart| !chart.is_empty()).collect()
}

/// Name of one of several runs.
fn name(index: usize) -> String {
    format!("run {}", index + 1)
}

fn since_beginning() -> Axis {
    Axis::linear("since the beginning", Unit::Seconds).from(0.0)
}

/// Figure of an interval of a run.
type OfPart = fn(&Interval) -> f64;

/// A series per run.
fn each_run(runs: &[Run], shape: impl Fn(&Run) -> Shape) -> Vec<Series> {
    let series = runs.iter().enumerate();
    series.map(|(index, run)| Series::new(name(index), Colour::Series(index), shape(run))).collect()
}

fn distribution(runs: &[Run]) -> Chart {
    let all = merged(runs, |run| &run.response);
    let together = if runs.len() > 1 { ", all runs together" } else { "" };
    let caption = format!("Share of the {} requests by their response time{together}.", units::count(all.count()));
    times("Response times", caption, "response time", 0, histogram(&all))
}

fn lag(runs: &[Run]) -> Chart {
    let caption = "How long after it was due a request was sent: the load generator's own delay, and waiting for a free \
                   place on a connection.";
    times("Send lag", caption.to_owned(), "send lag", 1, histogram(&merged(runs, |run| &run.lag)))
}

/// Chart of shares of requests by time.
fn times(title: &str, caption: String, time: &str, colour: usize, (bars, rules): (Vec<Bar>, Vec<Rule>)) -> Chart {
    let axes = (Axis::log(time, Unit::Micros), Axis::linear("share of requests", Unit::Share).from(0.0));
    Chart::new(title, caption, axes, [Series::new("", Colour::Series(colour), Shape::Bars(bars))]).rules(rules)
}

/// A distribution as bars of equal ratio, and its percentiles as rules.
fn histogram(distribution: &Distribution) -> (Vec<Bar>, Vec<Rule>) {
    if distribution.count() == 0 {
        return (Vec::new(), Vec::new());
    }
    let low = distribution.quantile_us(0.0).max(0.001);
    // At least a tenth of a decade, or a hundred equal times would be one bar without width.
    let high = (distribution.max_us() * 1.001).max(low * 1.26);
    let ratio = (high / low).powf(1.0 / units::real(BARS));
    let mut counts = vec![0; BARS];
    for value in distribution.histogram.iter_recorded() {
        let position = (units::float(value.value_iterated_to()) / 1e3 / low).max(1.0).ln() / ratio.ln();
        counts[index(position).min(BARS - 1)] += value.count_at_value();
    }
    let bars = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bar, &count)| {
        let [from, to] = [bar, bar + 1].map(|edge| low * ratio.powf(units::real(edge)));
        let value = units::share(count, distribution.count());
        let tip = format!("{} to {}: {}", units::micros(from), units::micros(to), units::percent(value));
        Bar { from, to, value, tip }
    });
    let rules = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)].map(|(name, share)| {
        let at = distribution.quantile_us(share);
        Rule { across: Across::X, at, label: format!("{name} {}", units::micros(at)) }
    });
    (bars.collect(), rules.into())
}

fn percentiles(runs: &[Run]) -> Chart {
    let line = |distribution: &Distribution| Shape::Line(curve(distribution));
    let several = runs.len() > 1;
    let mut series = each_run(runs, |run| line(&run.response));
    if let [only] = &mut series[..] {
        "response".clone_into(&mut only.label);
    }
    if let ([run], true) = (runs, runs.iter().any(|run| run.lag.count() > 0)) {
        series.push(Series::new("service", Colour::Series(1), line(&run.service)));
        series.push(Series::new("send lag", Colour::Series(2), line(&run.lag)));
    }
    let count = runs.iter().map(|run| run.response.count()).max().unwrap_or(0);
    let caption = if several {
        "The time that this share of the requests needed at most; a line a run."
    } else if series.len() > 1 {
        "The time that this share of the requests needed at most: from when each was due (response), from when it was \
         sent (service), and between the two (send lag)."
    } else {
        "The time that this share of the requests needed at most."
    };
    let x = Axis::log("share of requests", Unit::Count).from(1.0).ticks(shares(count));
    Chart::new("Percentiles", caption, (x, Axis::log("time at most", Unit::Micros)), series)
}

/// Ticks of an axis with equal distances between 90%, 99% and 99.9%, as far as `count` requests resolve them.
fn shares(count: u64) -> Vec<(f64, String)> {
    let names = ["0%", "50%", "90%", "99%", "99.9%", "99.99%", "99.999%", "99.9999%"];
    let places = [1.0, 2.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];
    let ticks = places.into_iter().zip(names.map(str::to_owned));
    ticks.filter(|(place, _)| *place <= units::float(count).max(2.0)).collect()
}

/// `(1 / share above, time)`: the axis is the share of requests that took longer, from all to one.
fn curve(distribution: &Distribution) -> Vec<(f64, f64)> {
    if distribution.count() == 0 {
        return Vec::new();
    }
    let last = units::float(distribution.count());
    let places = (0..=8 * POINTS_A_DECADE).map(|step| 10_f64.powf(f64::from(step) / f64::from(POINTS_A_DECADE)));
    let mut points: Vec<(f64, f64)> = places
        .take_while(|&place| place < last)
        .map(|place| (place, distribution.quantile_us(1.0 - 1.0 / place).max(0.001)))
        .collect();
    points.push((last.clamp(1.0, 1e8), distribution.max_us().max(0.001)));
    points
}

fn percentiles_over_time(runs: &[Run]) -> Chart {
    let line = |run: &Run, of: OfPart| {
        Shape::Line(run.series.iter().map(|part| (part.at_seconds + part.seconds / 2.0, of(part))).collect())
    };
    let (series, caption) = if let [run] = runs {
        let figures: [(_, OfPart); 5] = [
            ("p50", |part| part.p50_us),
            ("p90", |part| part.p90_us),
            ("p99", |part| part.p99_us),
            ("p99.9", |part| part.p999_us),
            ("max", |part| part.max_us),
        ];
        let lines = figures.into_iter().enumerate();
        let lines = lines.map(|(index, (name, of))| Series::new(name, Colour::Series(index), line(run, of)));
        (
            lines.collect(),
            "Response times of the requests that ended in each part of the run, those that failed among them.",
        )
    } else {
        let lines = each_run(runs, |run| line(run, |part| part.p99_us));
        (lines, "99th percentile of the response times in each part of a run; a line a run.")
    };
    let is_empty = runs.iter().all(|run| run.series.iter().all(|part| part.max_us <= 0.0));
    let title = if runs.len() > 1 { "p99 over time" } else { "Percentiles over time" };
    Chart::new(
        title,
        caption,
        (since_beginning(), Axis::log("response time", Unit::Micros)),
        if is_empty { Vec::new() } else { series },
    )
}

fn throughput(asked_for: Option<f64>, runs: &[Run]) -> Chart {
    let steps = |run: &Run, of: fn(&Interval) -> u64| -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> =
            run.series.iter().map(|part| (part.at_seconds, units::float(of(part)) / part.seconds)).collect();
        // The last interval has its length too.
        if let (Some(part), Some(&(_, rate))) = (run.series.last(), points.last()) {
            points.push((part.at_seconds + part.seconds, rate));
        }
        points
    };
    let answers = |run: &Run| steps(run, |part| part.requests);
    let mut series = match runs {
        [run] => vec![Series::new("answers", Colour::Series(0), Shape::Area(answers(run)))],
        runs => each_run(runs, |run| Shape::Steps(answers(run))),
    };
    let failed = runs.iter().filter(|run| run.series.iter().any(|part| part.errors > 0));
    let errors: Vec<Series> = failed
        .enumerate()
        .map(|(index, run)| {
            let label = if index == 0 { "errors" } else { "" };
            Series::new(label, Colour::Bad, Shape::Area(steps(run, |part| part.errors)))
        })
        .collect();
    let caption = if errors.is_empty() {
        "Answers a second. No request failed."
    } else {
        "Answers a second, and requests that failed, were given up or never sent."
    };
    series.extend(errors);
    series.extend(asked_over_time(asked_for, runs));
    let y = Axis::linear("requests a second", Unit::Count).from(0.0);
    Chart::new("Throughput", caption, (since_beginning(), y), series)
}

/// The requested rate in each interval of the longest run, as steps: a ramp rises beside the achieved rate.
fn asked_over_time(asked_for: Option<f64>, runs: &[Run]) -> Option<Series> {
    let end = |run: &Run| run.series.last().map_or(0.0, |part| part.at_seconds + part.seconds);
    let longest = runs.iter().max_by(|one, other| end(one).total_cmp(&end(other)))?;
    let (rate, end) = (asked_for?, end(longest));
    let mut points: Vec<(f64, f64)> =
        longest.series.iter().map(|part| (part.at_seconds, part.due / part.seconds.max(1e-9))).collect();
    if points.iter().all(|point| point.1 <= 0.0) {
        // Reports of earlier versions have only the mean.
        points = vec![(0.0, rate)];
    }
    points.push((end, points.last()?.1));
    (end > 0.0).then(|| {
        Series::new(format!("asked for, {} on average", units::rate(rate)), Colour::Muted, Shape::Steps(points))
    })
}

/// A row per client, or connection; the higher a request is in its row, the longer it took.
fn finishes(load: &Load, runs: &[Run]) -> Chart {
    let owner = if load.is_open() { "connection" } else { "client" };
    let finishes = runs.first().map_or(&[][..], |run| &run.finishes);
    let times = || finishes.iter().map(|finish| finish.response_us.max(0.001).ln()).filter(|time| time.is_finite());
    let (low, high) = (times().fold(f64::INFINITY, f64::min), times().fold(f64::NEG_INFINITY, f64::max));
    let rows = finishes.iter().map(|finish| finish.client).max().map_or(0, |last| last.saturating_add(1));
    let in_rows = rows <= ROWS_MAX;
    // Rows leave a quarter of their height free, to stay apart.
    let height = |response_us: f64| {
        let share = if high > low { (response_us.max(0.001).ln() - low) / (high - low) } else { 0.5 };
        if in_rows { 0.75 * share - 0.375 } else { 0.0 }
    };
    let series = (0..rows.min(if in_rows { ROWS_MAX } else { 1 })).map(|client| {
        let own = finishes.iter().filter(|finish| !in_rows || finish.client == client);
        let points = own.map(|finish| (finish.at_seconds, f64::from(finish.client) + height(finish.response_us)));
        Series::new("", Colour::Series(client as usize), Shape::Points(points.collect()))
    });
    let ticks =
        if in_rows { (0..rows).map(|client| (f64::from(client), client.to_string())).collect() } else { Vec::new() };
    let which = if runs.len() > 1 { " Of the first run." } else { "" };
    let caption = if in_rows {
        format!(
            "A dot is a finished request, in its {owner}'s row; the higher in the row, the longer it took (logarithmic). A \
             gap is a time in which nothing finished."
        )
    } else {
        format!(
            "A dot is a finished request at the height of its {owner}'s number. A gap is a time in which nothing finished."
        )
    };
    let y = Axis::linear(owner, Unit::Count).from(-0.6).to(f64::from(rows.max(1)) - 0.4).ticks(ticks);
    let axes = (Axis::linear("finished at", Unit::Seconds).from(0.0), y);
    Chart::new(format!("Finish times by {owner}"), format!("{caption}{which}"), axes, series)
}

fn server(runs: &[Run]) -> Chart {
    let buckets = figures::server_latency(runs);
    let calls: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    let first = buckets.iter().map(|bucket| bucket.0).find(|bound| *bound > 0.0 && bound.is_finite()).unwrap_or(1e-3);
    let mut from = first / 2.0;
    let mut bars = Vec::new();
    for (bound, count) in buckets {
        let is_last = !bound.is_finite();
        let to = if is_last { from * 2.0 } else { bound };
        if count > 0 && to > from {
            let value = units::share(count, calls);
            let shown = units::micros(if is_last { from } else { to } * 1e6);
            let tip = format!("{} {shown}: {}", if is_last { "over" } else { "up to" }, units::percent(value));
            bars.push(Bar { from: from * 1e6, to: to * 1e6, value, tip });
        }
        from = from.max(to);
    }
    let caption = format!(
        "Share of the {} calls by the time that the server counted for them, in its own buckets.",
        units::count(calls)
    );
    let mut chart = times("The server's own latency", caption, "time in the server", 6, (bars, Vec::new()));
    "share of calls".clone_into(&mut chart.y.label);
    chart
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never below 0, and clamped by its user")]
fn index(position: f64) -> usize {
    position as usize
}
