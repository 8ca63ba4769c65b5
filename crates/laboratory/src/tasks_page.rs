//! What the task server's evaluation found, as a page, as rows and as named figures, beside what was published.

use std::time::Duration;

use tasks::chain::Forecast;

use crate::tasks::{Answering, Cold, LEVELS, Level, PLAN, Runs, SUM, WARM_RUNS, Warm};
use crate::{Findings, experiment_page};
use bench::report::page::{Card, Figure, Table, Tone, Value};
use bench::report::plot::{Axis, Chart, Colour, Series, Shape, Unit};
use bench::report::units;
use bench::stats::interval::{median, number};

/// Puts everything together.
pub(super) fn findings(runs: &Runs, forecast: &Forecast) -> anyhow::Result<Findings> {
    let page = experiment_page("The task server's experiments")
        .lead(format!(
            "{} clients of {} requests each, every reply the seed of the client's next request; the sum of the last \
             replies was {SUM} in every run, and each of them was what it should be.",
            PLAN.clients, PLAN.requests
        ))
        .cards(cards(runs, forecast))
        .heading("From no concurrency to kept results")
        .paragraph(
            "Seconds from the first connection to the last reply, each on a server that had computed nothing. The \
             shortest possible is what the waits alone take, with processors that take no time: all of them after each \
             other, the longest chain of a client, or, where results are kept, the longest chain of waits that had \
             not begun before. Published on 12 cores.",
        )
        .table(levels(runs, forecast))
        .heading("Once more, when everything is kept")
        .paragraph(format!(
            "The same {} requests from one thread, to a server that has all results: a round trip for each is what is \
             left. In turns with the same requests to a server that only answers. The servers have one core and the \
             client another. The time begins with the first of {} connections and ends with the last reply; the \
             process and its thread are there already. A client asks as soon as it is connected.",
            PLAN.clients * PLAN.requests,
            PLAN.clients
        ))
        .table(warm_table(runs))
        .chart(warm_chart(runs));
    let csvs = vec![("runs.csv".to_owned(), runs_csv(runs, forecast)?), ("warm.csv".to_owned(), warm_csv(runs)?)];
    Ok(Findings { page: page.finish(), csvs, summary: summary(runs, forecast) })
}

fn bound(level: &Level, forecast: &Forecast) -> f64 {
    forecast.bound(level.concurrency, level.cache).as_secs_f64()
}

fn cold<'a>(runs: &'a Runs, level: &Level) -> impl Iterator<Item = &'a Cold> {
    let name = level.name;
    runs.cold.iter().filter(move |one| one.level.name == name)
}

fn seconds(runs: &Runs, level: &Level) -> f64 {
    median(&cold(runs, level).map(|one| one.elapsed.as_secs_f64()).collect::<Vec<_>>())
}

/// How much longer than the bound it took, in percent of the bound.
fn over_percent(runs: &Runs, level: &Level, forecast: &Forecast) -> f64 {
    let bound = bound(level, forecast);
    (seconds(runs, level) - bound) / bound * 100.0
}

/// Some part of the warm runs of one kind, in milliseconds, from the least to the most.
fn warm_ms(runs: &Runs, answering: Answering, part: impl Fn(&Warm) -> Duration) -> Vec<f64> {
    let all = runs.warm.iter().filter(|one| one.answering == answering);
    let mut times: Vec<f64> = all.map(|one| part(one).as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn asking(one: &Warm) -> Duration {
    one.elapsed.saturating_sub(one.connecting)
}

fn cards(runs: &Runs, forecast: &Forecast) -> Vec<Card> {
    let kept = &LEVELS[LEVELS.len() - 1];
    let over = over_percent(runs, kept, forecast);
    let took = seconds(runs, kept);
    let warm = median(&warm_ms(runs, Answering::Quire, |one| one.elapsed));
    let floor = median(&warm_ms(runs, Answering::Floor, |one| one.elapsed));
    let first = seconds(runs, &LEVELS[0]);
    vec![
        Card {
            name: "Concurrent tasks, results kept".to_owned(),
            value: Value::figure("cached_seconds", took, format!("{took:.3} s")),
            note: format!("{over:.2}% over the shortest possible; published {} s", kept.published_seconds),
            tone: Tone::Main,
        },
        Card {
            name: "Once more, warm".to_owned(),
            value: Value::figure("warm_median_ms", warm, format!("{warm:.2} ms")),
            note: format!("{floor:.2} ms with a server that only answers"),
            tone: Tone::Plain,
        },
        Card {
            name: "One request after another".to_owned(),
            value: Value::figure("none_seconds", first, format!("{first:.1} s")),
            note: format!("published {} s", LEVELS[0].published_seconds),
            tone: Tone::Plain,
        },
    ]
}

fn levels(runs: &Runs, forecast: &Forecast) -> Table {
    let heads = ["level", "published, s", "measured, s", "shortest possible, s", "over it", "runs", "server CPU, ms"];
    LEVELS.iter().fold(Table::of_numbers("The published levels", heads), |table, level| {
        let (took, bound) = (seconds(runs, level), bound(level, forecast));
        let over = over_percent(runs, level, forecast);
        let cpu = median(&cold(runs, level).map(|one| one.cpu.as_secs_f64() * 1e3).collect::<Vec<_>>());
        table.row([
            Value::text(level.title),
            Value::text(format!("{:.1}", level.published_seconds)),
            Value::figure(format!("{}_seconds", level.name), took, format!("{took:.3}")),
            Value::figure(format!("{}_bound_seconds", level.name), bound, format!("{bound:.3}")),
            Value::figure(format!("{}_over_percent", level.name), over, format!("{over:.2}%")),
            Value::text(cold(runs, level).count().to_string()),
            Value::figure(format!("{}_cpu_ms", level.name), cpu, units::number(cpu)),
        ])
    })
}

/// The rows of the table of warm runs: what is shown, the key, who answered, and which part of the time.
type Row = (&'static str, &'static str, Answering, fn(&Warm) -> Duration);

const ROWS: [Row; 5] = [
    ("the second run", "second", Answering::Second, |one| one.elapsed),
    ("further runs", "warm", Answering::Quire, |one| one.elapsed),
    ("of that, until all were connected", "warm_connecting", Answering::Quire, |one| one.connecting),
    ("of that, after all were connected", "warm_asking", Answering::Quire, asking),
    ("a server that only answers", "floor", Answering::Floor, |one| one.elapsed),
];

/// The least, the value that a tenth is below, the middle, and the value that nine tenths are below.
fn spread(times: &[f64]) -> [(&'static str, f64); 4] {
    let at = |tenths: usize| times.get(times.len() * tenths / 10).copied().unwrap_or(f64::NAN);
    [("least", at(0)), ("p10", at(1)), ("median", median(times)), ("p90", at(9))]
}

fn warm_table(runs: &Runs) -> Table {
    let heads = ["milliseconds", "least", "a tenth below", "median", "nine tenths below"];
    ROWS.iter().fold(Table::of_numbers("Warm runs", heads), |table, (title, key, answering, part)| {
        let figures = spread(&warm_ms(runs, *answering, part))
            .map(|(name, ms)| Value::figure(format!("{key}_{name}_ms"), ms, format!("{ms:.2}")));
        table.row([Value::text(*title)].into_iter().chain(figures))
    })
}

fn warm_chart(runs: &Runs) -> Figure {
    let series = [(Answering::Quire, "kept results"), (Answering::Floor, "only answers")];
    let series = series.into_iter().enumerate().map(|(colour, (answering, name))| {
        let times = warm_ms(runs, answering, |one| one.elapsed);
        let count = number(times.len().max(1));
        let points = times.iter().enumerate().map(|(place, ms)| (number(place + 1) / count, ms * 1e3)).collect();
        Series::new(name, Colour::Series(colour), Shape::Line(points))
    });
    Figure {
        title: "Warm runs, from the quickest to the slowest".to_owned(),
        caption: format!(
            "The time within which this part of the runs ended; {WARM_RUNS} of each in a round, in turns."
        ),
        chart: Chart {
            x: Axis::linear("part of the runs", Unit::Share).from(0.0).to(1.0),
            y: Axis::log("time of a run", Unit::Micros),
            series: series.collect(),
            ..Chart::default()
        },
    }
}

fn runs_csv(runs: &Runs, forecast: &Forecast) -> anyhow::Result<String> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record(["level", "round", "seconds", "connecting_seconds", "bound_seconds", "sum", "server_cpu_ms"])?;
    for one in &runs.cold {
        rows.write_record([
            one.level.name.to_owned(),
            one.round.to_string(),
            one.elapsed.as_secs_f64().to_string(),
            one.connecting.as_secs_f64().to_string(),
            bound(&one.level, forecast).to_string(),
            SUM.to_string(),
            one.cpu.as_millis().to_string(),
        ])?;
    }
    Ok(String::from_utf8(rows.into_inner()?)?)
}

fn warm_csv(runs: &Runs) -> anyhow::Result<String> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record(["answering", "round", "elapsed_us", "connecting_us"])?;
    for one in &runs.warm {
        rows.write_record([
            one.answering.name().to_owned(),
            one.round.to_string(),
            one.elapsed.as_micros().to_string(),
            one.connecting.as_micros().to_string(),
        ])?;
    }
    Ok(String::from_utf8(rows.into_inner()?)?)
}

fn summary(runs: &Runs, forecast: &Forecast) -> Vec<(String, f64)> {
    let mut summary = vec![("sum".to_owned(), units::float(SUM))];
    for level in &LEVELS {
        summary.push((format!("{}_seconds", level.name), seconds(runs, level)));
        summary.push((format!("{}_published_seconds", level.name), level.published_seconds));
        summary.push((format!("{}_bound_seconds", level.name), bound(level, forecast)));
        summary.push((format!("{}_over_percent", level.name), over_percent(runs, level, forecast)));
    }
    for (_, key, answering, part) in ROWS {
        for (name, ms) in spread(&warm_ms(runs, answering, part)) {
            summary.push((format!("{key}_{name}_ms"), ms));
        }
    }
    summary
}
