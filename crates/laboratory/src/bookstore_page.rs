//! What the bookstore's evaluation found, as a page, as rows and as named figures, beside what was published.

use crate::bookstore::{CURVE, STOCK, SUBJECTS, point_name};
use crate::lab::{Measured, Results, requests_csv};
use crate::{Findings, experiment_page};
use bench::report::page::{Banner, Card, Figure, Table, Tone, Value};
use bench::report::plot::{Axis, Chart, Colour, Series, Shape, Unit};
use bench::report::units;

/// What the subjects are called in tables and charts, in the order of [`SUBJECTS`].
const NAMES: [&str; 3] = ["Quire", "Quire, each from the database", "classic design"];

/// Milliseconds a request as published, by the name of the load.
const PUBLISHED_MS: [(&str, f64); 5] = [
    ("buy_sequential", 0.464_93),
    ("buy_10", 0.263_20),
    ("buy_100", 0.259_60),
    ("search_sequential", 0.499_25),
    ("search_10", 0.107_19),
];

/// The published questions, and the loads that answer them.
const QUESTIONS: [(&str, &str); 6] = [
    ("buy_sequential", "How long does a purchase take, one after another?"),
    ("search_sequential", "How long does a search take, one after another?"),
    ("buy_10", "What becomes of purchases with 10 clients at once?"),
    ("search_10", "What becomes of searches with 10 clients at once?"),
    ("buy_100", "And of purchases with 100?"),
    ("search_100", "And of searches with 100?"),
];

/// Loads for which the ratio to the classic design is stated.
const RATIOS: [&str; 8] = [
    "buy_sequential",
    "buy_10",
    "buy_100",
    "buy_100x10",
    "search_sequential",
    "search_10",
    "search_100",
    "search_100x10",
];

/// Puts everything together.
pub(super) fn findings(results: &Results, limited: &Results) -> anyhow::Result<Findings> {
    let page = experiment_page("The bookstore's experiments")
        .lead("Durable purchases and searches over gRPC: Quire, Quire with its two optimisations off, and the classic design.")
        .cards(cards(results))
        .heading("The published questions")
        .paragraph(
            "Milliseconds a request: the time of the whole run shared out over its requests, as published. Medians over \
             the rounds.",
        )
        .table(questions(results))
        .heading("Against the classic design")
        .paragraph("Requests a second, and how many times the classic design's rate that is, with the 95% interval over rounds.")
        .table(ratios(results))
        .table(costs(results))
        .heading("Limited stock")
        .paragraph(format!(
            "5,000 purchases of a book with {STOCK} copies, on an empty database each time. Every server sold exactly \
             {STOCK}. Most purchases are refused here, and a refusal is cheap: it writes nothing."
        ))
        .table(limited_table(limited))
        .heading("Ten clients")
        .charts((0..SUBJECTS.len()).map(|subject| finishes(results, subject)).collect())
        .heading("One to twenty clients")
        .charts(vec![curve(results, "buy", "Purchases"), curve(results, "search", "Searches")]);
    let doubts: Vec<String> = results.doubts().into_iter().chain(limited.doubts()).collect();
    let page = if doubts.is_empty() {
        page
    } else {
        page.banner(Banner {
            tone: Tone::Warning,
            key: "doubtful".to_owned(),
            title: "Runs with a doubt".to_owned(),
            words: "These runs do not meet every condition of a valid one; their figures are shown all the same."
                .to_owned(),
            reasons: doubts,
        })
    };
    let csvs = vec![
        ("runs.csv".to_owned(), runs_csv([results, limited])?),
        ("requests.csv".to_owned(), requests_csv(results.all().iter().chain(limited.all()))?),
    ];
    Ok(Findings { page: page.finish(), csvs, summary: summary(results, limited) })
}

fn rate(one: &Measured) -> f64 {
    one.run.rate
}

fn cards(results: &Results) -> Vec<Card> {
    [
        ("buy_100", "Purchases, 100 clients"),
        ("buy_100x10", "Purchases, 100 clients, 10 in flight"),
        ("search_100", "Searches, 100 clients"),
    ]
    .into_iter()
    .map(|(load, name)| {
        let ours = results.median(SUBJECTS[0], load, rate);
        let ratio = results.ratio(SUBJECTS[0], SUBJECTS[2], load, rate);
        Card {
            name: name.to_owned(),
            value: Value::figure(format!("{load}_per_second"), ours, format!("{} /s", units::number(ours))),
            note: ratio.map_or_else(String::new, |ratio| format!("{:.1} times the classic design", ratio.estimate)),
            tone: Tone::Main,
        }
    })
    .collect()
}

fn questions(results: &Results) -> Table {
    let heads = ["question", "published, ms", NAMES[0], NAMES[1], NAMES[2]];
    QUESTIONS.iter().fold(Table::of_numbers("Milliseconds a request", heads), |table, (load, question)| {
        let published = PUBLISHED_MS.iter().find(|(name, _)| name == load);
        let published = published.map_or_else(|| "none".to_owned(), |(_, ms)| format!("{ms:.5}"));
        let measured = SUBJECTS.iter().map(|subject| {
            let ms = results.median(subject, load, Measured::ms_a_request);
            Value::figure(format!("{load}_{subject}_ms"), ms, format!("{ms:.5}"))
        });
        table.row([Value::text(*question), Value::text(published)].into_iter().chain(measured))
    })
}

fn ratios(results: &Results) -> Table {
    let heads = ["load", NAMES[0], NAMES[1], NAMES[2], "ratio", "95% interval"];
    RATIOS.iter().fold(Table::of_numbers("Requests a second", heads), |table, load| {
        let rates = SUBJECTS.iter().map(|subject| {
            let rate = results.median(subject, load, rate);
            Value::figure(format!("{load}_{subject}_per_second"), rate, units::number(rate))
        });
        let (ratio, interval) = match results.ratio(SUBJECTS[0], SUBJECTS[2], load, rate) {
            Some(ratio) => (
                Value::figure(format!("{load}_ratio"), ratio.estimate, format!("{:.1}", ratio.estimate)),
                format!("{:.1} to {:.1}", ratio.low, ratio.high),
            ),
            None => (Value::text(""), "needs two rounds".to_owned()),
        };
        table.row([Value::text(load_name(load))].into_iter().chain(rates).chain([ratio, Value::text(interval)]))
    })
}

fn costs(results: &Results) -> Table {
    let heads = ["load", "p99, ms: Quire", "classic design", "CPU a request, µs: Quire", "classic design"];
    RATIOS.iter().fold(Table::of_numbers("What a request takes", heads), |table, load| {
        let p99 = |subject| {
            let ms = results.median(subject, load, |one| one.run.response.quantile_us(0.99)) / 1e3;
            Value::figure(format!("{load}_{subject}_p99_ms"), ms, format!("{ms:.2}"))
        };
        let cpu = |subject| {
            let cpu = results.median(subject, load, Measured::server_cpu_us);
            Value::figure(format!("{load}_{subject}_cpu_us"), cpu, format!("{cpu:.1}"))
        };
        let [ours, _, classic] = SUBJECTS;
        table.row([Value::text(load_name(load)), p99(ours), p99(classic), cpu(ours), cpu(classic)])
    })
}

fn load_name(load: &str) -> String {
    load.replace('_', ", ")
}

fn limited_table(limited: &Results) -> Table {
    let heads = ["clients", "server", "sold", "refused", "failed", "ms a request"];
    let mut table = Table::of_numbers("Stock for a fifth of the purchases", heads);
    for clients in ["sequential", "10", "100"] {
        let load = format!("limited_{clients}");
        for (subject, name) in SUBJECTS.iter().zip(NAMES) {
            let count = |ending: &'static str| {
                let count = limited
                    .median(subject, &load, |one| units::float(one.run.endings.get(ending).copied().unwrap_or(0)));
                Value::figure(format!("{load}_{subject}_{ending}"), count, units::number(count))
            };
            let failed = limited.median(subject, &load, |one| units::float(one.run.errors));
            let failed =
                Value::figure(format!("{load}_{subject}_failed"), failed, units::number(failed)).bad(failed > 0.0);
            let ms = limited.median(subject, &load, Measured::ms_a_request);
            let ms = Value::figure(format!("{load}_{subject}_ms"), ms, format!("{ms:.5}"));
            table = table.row([Value::text(clients), Value::text(name), count("done"), count("refused"), failed, ms]);
        }
    }
    table
}

/// The finish time of each request in ten clients: of the first round.
fn finishes(results: &Results, subject: usize) -> Figure {
    let run = results.of(SUBJECTS[subject], "buy_10").next().map(|one| &one.run);
    let points = |client: u32| {
        let finishes = run.iter().flat_map(|run| &run.finishes).filter(move |finish| finish.client == client);
        finishes.map(|finish| (finish.at_seconds, f64::from(u32::try_from(finish.turn).unwrap_or(u32::MAX)))).collect()
    };
    let series = (0..10).map(|client| {
        let colour = usize::try_from(client).unwrap_or(0);
        Series::new(format!("client {client}"), Colour::Series(colour), Shape::Points(points(client)))
    });
    Figure {
        title: format!("{}: finish time of each purchase, ten clients", NAMES[subject]),
        caption: "A dot is a purchase: to the right the time it finished, upwards its number among its client's."
            .to_owned(),
        chart: Chart {
            x: Axis::linear("finished at", Unit::Seconds).from(0.0),
            y: Axis::linear("purchase of its client", Unit::Count).from(0.0),
            series: series.collect(),
            ..Chart::default()
        },
    }
}

/// Mean time against number of clients.
fn curve(results: &Results, method: &str, title: &str) -> Figure {
    let mean =
        |subject, clients| results.median(subject, &point_name(method, clients), |one| one.run.response.mean_us());
    let series = SUBJECTS.iter().zip(NAMES).enumerate().map(|(index, (subject, name))| {
        #[expect(clippy::cast_precision_loss, reason = "clients are few")]
        let points = CURVE.map(|clients| (clients as f64, mean(subject, clients))).collect();
        Series::new(name, Colour::Series(index), Shape::Line(points))
    });
    Figure {
        title: format!("{title}: mean time against number of clients"),
        caption: "Mean response time; medians over the rounds.".to_owned(),
        chart: Chart {
            x: Axis::linear("clients", Unit::Count).from(0.0),
            y: Axis::log("mean response time", Unit::Micros),
            series: series.collect(),
            ..Chart::default()
        },
    }
}

/// A row a run.
pub(super) fn runs_csv<'a>(results: impl IntoIterator<Item = &'a Results>) -> anyhow::Result<String> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record([
        "load",
        "server",
        "round",
        "requests",
        "errors",
        "seconds",
        "requests_per_second",
        "mean_us",
        "p50_us",
        "p99_us",
        "p999_us",
        "server_cpu_us_a_request",
        "client_busy_max",
        "doubts",
    ])?;
    for one in results.into_iter().flat_map(Results::all) {
        let response = &one.run.response;
        rows.write_record([
            one.load.clone(),
            one.subject.to_owned(),
            one.round.to_string(),
            one.run.requests.to_string(),
            one.run.errors.to_string(),
            one.run.seconds.to_string(),
            one.run.rate.to_string(),
            response.mean_us().to_string(),
            response.quantile_us(0.5).to_string(),
            response.quantile_us(0.99).to_string(),
            response.quantile_us(0.999).to_string(),
            one.server_cpu_us().to_string(),
            one.run.client_busy_max.to_string(),
            one.run.verdict.reasons.join("; "),
        ])?;
    }
    Ok(String::from_utf8(rows.into_inner()?)?)
}

fn summary(results: &Results, limited: &Results) -> Vec<(String, f64)> {
    let mut summary = Vec::new();
    for load in RATIOS {
        for subject in SUBJECTS {
            summary.push((format!("{load}_{subject}_per_second"), results.median(subject, load, rate)));
            summary.push((format!("{load}_{subject}_ms"), results.median(subject, load, Measured::ms_a_request)));
            let p99 = results.median(subject, load, |one| one.run.response.quantile_us(0.99));
            summary.push((format!("{load}_{subject}_p99_ms"), p99 / 1e3));
            summary.push((format!("{load}_{subject}_cpu_us"), results.median(subject, load, Measured::server_cpu_us)));
            let errors = results.median(subject, load, |one| units::float(one.run.errors));
            summary.push((format!("{load}_{subject}_errors"), errors));
        }
        if let Some(ratio) = results.ratio(SUBJECTS[0], SUBJECTS[2], load, rate) {
            summary.push((format!("{load}_ratio"), ratio.estimate));
            summary.push((format!("{load}_ratio_low"), ratio.low));
            summary.push((format!("{load}_ratio_high"), ratio.high));
        }
    }
    for clients in ["sequential", "10", "100"] {
        let load = format!("limited_{clients}");
        for subject in SUBJECTS {
            let sold =
                limited.median(subject, &load, |one| units::float(one.run.endings.get("done").copied().unwrap_or(0)));
            summary.push((format!("{load}_{subject}_sold"), sold));
            summary.push((format!("{load}_{subject}_ms"), limited.median(subject, &load, Measured::ms_a_request)));
        }
    }
    for method in ["buy", "search"] {
        for clients in CURVE {
            let load = point_name(method, clients);
            for subject in SUBJECTS {
                let mean = results.median(subject, &load, |one| one.run.response.mean_us());
                summary.push((format!("{load}_{subject}_mean_us"), mean));
            }
        }
    }
    summary
}
