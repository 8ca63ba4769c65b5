//! The bookstore's evaluation: purchases and searches sequentially, from 10 and from 100 clients, and from 1 to 20
//! clients, with stock for a fifth of the purchases and with plenty.
//!
//! Three servers are measured: Quire (group commit, in-memory searches), Quire without both (one transaction per
//! purchase, searches in the database), and the classic design of `load/peers/`.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use bench::plan::End;
use bench::report::page::{Card, Page, Table, Value};
use bench::report::plot::{Axis, Chart, Colour, Series, Shape, Unit};
use bench::report::units;
use bench::workload::grpc::{Endings, GrpcWorkload, Requests};
use bookstore::grpc::wire::{BookTopicRequest, ItemNumberRequest, RestockRequest};
use kit::Server;
use prost::Message;

use crate::lab::{Lab, calls, closed, measure, named, prepare};
use crate::results::{
    Findings, Observed, RUN_COLUMNS, Results, Summary, card, fixed, page, ratio_cells, requests_csv, row, runs_csv,
};

/// The subjects, in the order of every table.
const SUBJECTS: [&str; 3] = ["quire", "quire_each", "classic"];
const NAMES: [&str; 3] = ["Quire", "Quire, each from the database", "classic design"];
/// Settings that turn both optimisations of Quire off.
const EACH: [&str; 2] = ["ledger.commit=each", "catalogue.reads=database"];
/// Requests of the published experiments.
const REQUESTS: u64 = 5_000;
/// Copies of each book when a server starts on an empty folder.
const STOCK: u32 = 1_000;
/// More copies than all runs sell.
const PLENTY: i32 = 2_000_000_000;
/// Book of the sample catalogue that every client buys, and its topic.
const BOOK: i32 = 53_477;
const TOPIC: &str = "distributed systems";
/// Duration of a point of the curve over the number of clients, and of a load with several calls in flight.
const POINT: Duration = Duration::from_secs(1);
/// Numbers of clients of the curve.
const CURVE: RangeInclusive<usize> = 1..=20;
/// Published numbers of clients.
const CLIENTS: [(&str, usize); 3] = [("sequential", 1), ("10", 10), ("100", 100)];
/// Highest share of failed requests: beyond it a run measures nothing.
const FAILED_SHARE_MAX: f64 = 0.99;

/// Published questions, their loads and, where published, milliseconds per request.
const QUESTIONS: [(&str, &str, Option<f64>); 6] = [
    ("buy_sequential", "How long does a purchase take, one after another?", Some(0.464_93)),
    ("search_sequential", "How long does a search take, one after another?", Some(0.499_25)),
    ("buy_10", "How long does a purchase take with 10 clients at once?", Some(0.263_20)),
    ("search_10", "How long does a search take with 10 clients at once?", Some(0.107_19)),
    ("buy_100", "How long does a purchase take with 100?", Some(0.259_60)),
    ("search_100", "How long does a search take with 100?", None),
];

/// Loads whose ratio to the classic design is stated.
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

#[derive(Clone, Copy, Debug)]
enum Method {
    Buy,
    Search,
}

const METHODS: [(&str, Method); 2] = [("buy", Method::Buy), ("search", Method::Search)];

#[derive(Clone, Copy, Debug)]
struct Load {
    method: Method,
    clients: usize,
    in_flight: usize,
    end: End,
}

/// The first field of every reply: decoding the rest would cost the client more than some servers spend.
#[derive(Clone, PartialEq, Message)]
struct Outcome {
    #[prost(bool, tag = "1")]
    success: bool,
}

/// Outcomes of an answered call, by the answer's success flag.
const DONE: u16 = 0;
const REFUSED: u16 = 1;

/// Loads of the published questions, further ones, and the curve.
fn loads() -> Vec<(String, Load)> {
    let of_method = |(name, method)| {
        let load = move |clients, in_flight, end| Load { method, clients, in_flight, end };
        let counted = move |(suffix, clients)| (format!("{name}_{suffix}"), load(clients, 1, End::Count(REQUESTS)));
        let busy = (format!("{name}_100x10"), load(100, 10, End::After(POINT * 2)));
        let point = move |clients| (point_name(name, clients), load(clients, 1, End::After(POINT)));
        CLIENTS.into_iter().map(counted).chain([busy]).chain(CURVE.map(point))
    };
    METHODS.into_iter().flat_map(of_method).collect()
}

fn point_name(method: &str, clients: usize) -> String {
    format!("{method}_{clients}_clients")
}

/// Starts the servers, measures, and returns the findings.
pub(crate) fn run(lab: &mut Lab) -> anyhow::Result<Findings> {
    let loads = loads();
    // A counted load takes a server from 0.1 to 5 s.
    let runs = (CLIENTS.len() + loads.len()) * SUBJECTS.len() * lab.options.rounds;
    lab.progress.expect(runs, POINT + POINT / 4);
    for round in lab.rounds() {
        for (name, clients) in CLIENTS {
            limited_stock(lab, round, name, clients)?;
        }
    }
    let servers = start(lab)?;
    servers.iter().try_for_each(fill)?;
    for round in lab.rounds() {
        lab.in_turns(round, &SUBJECTS, &loads, |subject, load| measured(named(&servers, subject), *load))?;
    }
    findings(&lab.results)
}

/// Loads with the published stock: each server starts on an empty folder, so all have equal stock.
fn limited_stock(lab: &mut Lab, round: usize, name: &str, clients: usize) -> anyhow::Result<()> {
    let servers = start(lab)?;
    let load = Load { method: Method::Buy, clients, in_flight: 1, end: End::Count(REQUESTS) };
    lab.in_turns(round, &SUBJECTS, &[(format!("limited_{name}"), load)], |subject, load| {
        let seen = measured(named(&servers, subject), *load)?;
        let sold = seen.figure("done");
        ensure!((sold - f64::from(STOCK)).abs() < 0.5, "{subject} sold {sold} copies of {STOCK} to {clients} clients");
        Ok(seen.with("sold", sold))
    })
}

fn start(lab: &Lab) -> anyhow::Result<Vec<Server>> {
    let [quire, each, classic] = SUBJECTS;
    Ok(vec![
        lab.quire(quire, "bookstore", &[])?,
        lab.quire(each, "bookstore", &EACH)?,
        lab.peer(classic, "classic-bookstore", &["--stock", &STOCK.to_string()])?,
    ])
}

/// Gives a server more copies than all runs sell.
pub(crate) fn fill(server: &Server) -> anyhow::Result<()> {
    let restock = calls_of(server, "/bookstore.Admin/Restock", &RestockRequest { amount: Some(PLENTY), id: None })?;
    prepare(&restock, &closed(1, 1, End::Count(1)))
}

fn calls_of(server: &Server, path: &str, message: &impl Message) -> anyhow::Result<GrpcWorkload> {
    calls(server, path, Requests::constant(message.encode_to_vec()))
}

fn measured(server: &Server, load: Load) -> anyhow::Result<Observed> {
    let mut workload = match load.method {
        Method::Buy => {
            calls_of(server, "/bookstore.BookStore/Buy", &ItemNumberRequest { id: BOOK, ..Default::default() })?
        }
        Method::Search => {
            let topic = BookTopicRequest { topic: TOPIC.to_owned(), ..Default::default() };
            calls_of(server, "/bookstore.BookStore/Search", &topic)?
        }
    };
    let classify = |reply: &[u8]| {
        let success = Outcome::decode(reply).is_ok_and(|outcome| outcome.success);
        Endings::own(if success { DONE } else { REFUSED }, false)
    };
    workload.endings = Endings::classified(["done".to_owned(), "refused".to_owned()], Arc::new(classify));
    let warm_up = match load.end {
        End::After(duration) => Some(End::After(duration / 5)),
        End::Count(_) => None,
    };
    measure(server, &workload, warm_up, &closed(load.clients, load.in_flight, load.end), FAILED_SHARE_MAX)
}

fn findings(results: &Results) -> anyhow::Result<Findings> {
    let csvs = vec![("runs.csv", runs_csv(results.all(), &RUN_COLUMNS)?), ("requests.csv", requests_csv(results)?)];
    Ok(Findings { page: the_page(results), csvs, summary: summary(results) })
}

fn the_page(results: &Results) -> Page {
    page("The bookstore's experiments", "Durable purchases and searches over gRPC: Quire, Quire with its two optimisations off, and the classic design.")
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
            "{} purchases of a book with {STOCK} copies, on an empty database each time. Every server sold exactly \
             {STOCK}. Most purchases are refused here; a refusal is cheap, because it writes nothing.",
            units::count(REQUESTS)
        ))
        .table(limited(results))
        .heading("Ten clients")
        .charts(SUBJECTS.iter().zip(NAMES).map(|(subject, name)| finishes(results, subject, name)).collect())
        .heading("One to twenty clients")
        .charts(vec![curve(results, "buy", "Purchases"), curve(results, "search", "Searches")])
}

fn cards(results: &Results) -> Vec<Card> {
    let of = |(load, name): (&str, &str)| {
        let ours = results.median(load, SUBJECTS[0], "per_second");
        let ratio = results.ratio("per_second", load, SUBJECTS[0], SUBJECTS[2]);
        let note = ratio.map_or_else(String::new, |ratio| format!("{:.1} times the classic design", ratio.estimate));
        card(name, Value::figure(format!("{load}_per_second"), ours, format!("{} /s", units::number(ours))), note)
    };
    let cards = [
        ("buy_100", "Purchases, 100 clients"),
        ("buy_100x10", "Purchases, 100 clients, 10 in flight"),
        ("search_100", "Searches, 100 clients"),
    ];
    cards.map(of).into()
}

fn questions(results: &Results) -> Table {
    let rows = QUESTIONS.map(|(load, question, published)| {
        let published = published.map_or_else(|| "none".to_owned(), fixed::<5>);
        row([question, &published], SUBJECTS.map(|subject| results.cell(load, subject, "ms", fixed::<5>)))
    });
    Table::of_numbers("Milliseconds a request", ["question", "published, ms"].into_iter().chain(NAMES), rows)
}

fn ratios(results: &Results) -> Table {
    let rows = RATIOS.map(|load| {
        let rates = SUBJECTS.map(|subject| results.cell(load, subject, "per_second", units::number));
        let ratio = ratio_cells(format!("{load}_ratio"), results.ratio("per_second", load, SUBJECTS[0], SUBJECTS[2]));
        row([&*load_name(load)], rates.into_iter().chain(ratio))
    });
    Table::of_numbers("Requests a second", ["load"].into_iter().chain(NAMES).chain(["ratio", "95% interval"]), rows)
}

fn costs(results: &Results) -> Table {
    let heads = ["load", "p99, ms: Quire", "classic design", "CPU a request, µs: Quire", "classic design"];
    let [ours, _, classic] = SUBJECTS;
    let rows = RATIOS.map(|load| {
        let p99 = [ours, classic].map(|subject| results.cell(load, subject, "p99_ms", fixed::<2>));
        let cpu = [ours, classic].map(|subject| results.cell(load, subject, "cpu_us", fixed::<1>));
        row([&*load_name(load)], p99.into_iter().chain(cpu))
    });
    Table::of_numbers("What a request takes", heads, rows)
}

fn load_name(load: &str) -> String {
    load.replace('_', ", ")
}

fn limited(results: &Results) -> Table {
    let heads = ["clients", "server", "sold", "refused", "failed", "ms a request"];
    let rows = CLIENTS.into_iter().flat_map(|(clients, _)| {
        SUBJECTS.into_iter().zip(NAMES).map(move |(subject, name)| {
            let load = format!("limited_{clients}");
            let cell = |figure, show| results.cell(&load, subject, figure, show);
            let failed = cell("failed", units::number).bad(results.median(&load, subject, "failed") > 0.0);
            let counts = [cell("done", units::number), cell("refused", units::number), failed];
            row([clients, name], counts.into_iter().chain([cell("ms", fixed::<5>)]))
        })
    });
    Table::of_numbers("Stock for a fifth of the purchases", heads, rows)
}

/// Completion times of ten clients' requests in the first round.
fn finishes(results: &Results, subject: &str, name: &str) -> Chart {
    let finishes = results.of("buy_10", subject).next().map_or(&[][..], |one| &one.seen.finishes);
    let series = (0..10).map(|client| {
        let own = finishes.iter().filter(|finish| usize::try_from(finish.client) == Ok(client));
        let points = own.map(|finish| (finish.at_seconds, units::float(finish.turn))).collect();
        Series::new(format!("client {client}"), Colour::Series(client), Shape::Points(points))
    });
    let axes = (
        Axis::linear("finished at", Unit::Seconds).from(0.0),
        Axis::linear("purchase of its client", Unit::Count).from(0.0),
    );
    let caption = "A dot is a purchase: to the right the time it finished, upwards its number among its client's.";
    Chart::new(format!("{name}: finish time of each purchase, ten clients"), caption, axes, series)
}

/// Mean time against number of clients.
fn curve(results: &Results, method: &str, title: &str) -> Chart {
    let point = |subject: &str, clients| {
        let mean = results.median(&point_name(method, clients), subject, "mean_us");
        (units::float(clients as u64), mean)
    };
    let axes = (Axis::linear("clients", Unit::Count).from(0.0), Axis::log("mean response time", Unit::Micros));
    Chart::of_lines(
        format!("{title}: mean time against number of clients"),
        "Mean response time; medians over the rounds.",
        axes,
        SUBJECTS
            .iter()
            .zip(NAMES)
            .map(|(subject, name)| (name, CURVE.map(|clients| point(subject, clients)).collect())),
    )
}

fn summary(results: &Results) -> Summary {
    let mut summary = Summary::default();
    for load in RATIOS {
        summary.medians(results, load, &SUBJECTS, &["per_second", "ms", "p99_ms", "cpu_us", "errors"]);
        summary.ratio(&format!("{load}_ratio"), results.ratio("per_second", load, SUBJECTS[0], SUBJECTS[2]));
    }
    for (clients, _) in CLIENTS {
        summary.medians(results, &format!("limited_{clients}"), &SUBJECTS, &["sold", "ms"]);
    }
    for (method, _) in METHODS {
        for clients in CURVE {
            summary.medians(results, &point_name(method, clients), &SUBJECTS, &["mean_us"]);
        }
    }
    summary
}
