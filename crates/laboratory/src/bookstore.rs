//! The bookstore's evaluation: purchases and searches one after another, from 10 and from 100 clients, and from 1 to
//! 20 clients, with stock for a fifth of the purchases and with plenty.
//!
//! Three servers are measured: Quire as it is (purchases committed in groups, searches from memory), Quire with both
//! of these switched off (a transaction a purchase, searches from the database), and the classic design of `peers/`.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use prost::Message;

use crate::lab::{self, Measured, Results};
use crate::server::Server;
use crate::{Findings, Options};
use bench::cores::cores;
use bench::measurement::Run;
use bench::plan::{End, Pace, Plan};
use bench::run::run;
use bench::tls::TlsArgs;
use bench::workload::grpc::{Endings, GrpcWorkload, Requests, Shape, Target};

/// The subjects, in the order of every table.
pub(super) const SUBJECTS: [&str; 3] = ["quire", "quire_each", "classic"];
/// Requests of the published experiments.
const REQUESTS: u64 = 5_000;
/// Copies of each book when a server starts on an empty folder.
pub(super) const STOCK: u64 = 1_000;
/// Stock that no run sells out.
const PLENTY: i32 = 2_000_000_000;
/// The book that everybody wants, of the sample catalogue, and its topic.
const BOOK: i32 = 53_477;
const TOPIC: &str = "distributed systems";
/// How long a point of the curve over the number of clients is measured, and a load with calls in flight.
const POINT: Duration = Duration::from_secs(1);

/// The other services stay out, with the ports they would take.
const ALONE: [&str; 3] = ["kv.enabled=false", "rpcgame.enabled=false", "tasks.enabled=false"];

/// The numbers of clients of the curve.
pub(super) const CURVE: std::ops::RangeInclusive<usize> = 1..=20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Buy,
    Search,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    method: Method,
    clients: usize,
    in_flight: usize,
    end: End,
}

// The contract, as far as the experiment needs it.
#[derive(Clone, PartialEq, Message)]
struct ItemNumberRequest {
    #[prost(int32, tag = "1")]
    id: i32,
}

#[derive(Clone, PartialEq, Message)]
struct BookTopicRequest {
    #[prost(string, tag = "1")]
    topic: String,
}

/// Every reply of the bookstore begins with whether it succeeded.
#[derive(Clone, PartialEq, Message)]
struct Outcome {
    #[prost(bool, tag = "1")]
    success: bool,
}

#[derive(Clone, PartialEq, Message)]
struct RestockRequest {
    #[prost(int32, optional, tag = "1")]
    amount: Option<i32>,
}

/// The loads with the published stock, with their clients.
const LIMITED: [(&str, usize); 3] = [("sequential", 1), ("10", 10), ("100", 100)];

/// Endings of a call that was answered, by whether the answer tells success.
const DONE: u16 = 0;
const REFUSED: u16 = 1;

/// The loads of the published questions, and those beyond them.
fn loads() -> Vec<(String, Load)> {
    let counted = End::Count(REQUESTS);
    let mut loads = Vec::new();
    for (name, method) in [("buy", Method::Buy), ("search", Method::Search)] {
        for (suffix, clients) in [("sequential", 1), ("10", 10), ("100", 100)] {
            loads.push((format!("{name}_{suffix}"), Load { method, clients, in_flight: 1, end: counted }));
        }
        let busy = Load { method, clients: 100, in_flight: 10, end: End::After(POINT * 2) };
        loads.push((format!("{name}_100x10"), busy));
    }
    loads
}

fn curve() -> Vec<(String, Load)> {
    let methods = [("buy", Method::Buy), ("search", Method::Search)];
    let point = |method, clients| Load { method, clients, in_flight: 1, end: End::After(POINT) };
    methods
        .iter()
        .flat_map(|(name, method)| CURVE.map(move |clients| (point_name(name, clients), point(*method, clients))))
        .collect()
}

pub(super) fn point_name(method: &str, clients: usize) -> String {
    format!("{method}_{clients}_clients")
}

/// Starts the servers, measures, and says what was found.
pub(super) fn run_experiment(options: &Options) -> anyhow::Result<Findings> {
    let folder =
        tempfile::Builder::new().prefix("data-").tempdir_in(&options.out).context("no folder for databases")?;
    // A counted load takes a server from a tenth of a second to five; the others have their times.
    let runs = |loads: usize| loads * SUBJECTS.len() * options.rounds;
    options.progress.expect(runs(LIMITED.len() + loads().len()), POINT * 2);
    options.progress.expect(runs(curve().len()), POINT);
    let mut limited = Results::default();
    for round in 0..options.rounds {
        limited.extend(limited_stock(options, &folder.path().join(format!("limited-{round}")), round)?);
    }
    let servers = start(options, &folder.path().join("plenty"))?;
    for server in &servers {
        restock(server)?;
    }
    let mut measure = |subject: usize, load: &Load| measure(&servers[subject], *load);
    let mut results =
        lab::in_turns(&options.progress, options.rounds, options.seed, &SUBJECTS, &loads(), &mut measure)?;
    results.extend(lab::in_turns(&options.progress, options.rounds, options.seed, &SUBJECTS, &curve(), &mut measure)?);
    for server in servers {
        server.stop()?;
    }
    crate::bookstore_page::findings(&results, &limited)
}

/// With the stock as published: each server on a new folder for each load, so that each has just so many to sell.
fn limited_stock(options: &Options, folder: &Path, round: usize) -> anyhow::Result<Results> {
    let mut results = Results::default();
    for (name, clients) in LIMITED {
        let servers = start(options, &folder.join(name))?;
        let load = Load { method: Method::Buy, clients, in_flight: 1, end: End::Count(REQUESTS) };
        let seed = options.seed + round as u64;
        let loads = [(format!("limited_{name}"), load)];
        let measured = lab::in_turns(&options.progress, 1, seed, &SUBJECTS, &loads, &mut |subject, load| {
            measure(&servers[subject], *load)
        })?;
        for Measured { subject, run, .. } in measured.all() {
            let sold = run.endings.get("done").copied().unwrap_or(0);
            ensure!(sold == STOCK, "{subject} sold {sold} copies of {STOCK} to {clients} clients: {:?}", run.endings);
        }
        results.extend(measured);
    }
    Ok(results)
}

fn start(options: &Options, folder: &Path) -> anyhow::Result<Vec<Server>> {
    let data = |name: &str| {
        let data = folder.join(name);
        std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
        anyhow::Ok(data)
    };
    let quire = |name: &str, settings: &[&str]| {
        let mut command = Command::new(&options.quire);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data(name)?);
        for setting in ALONE.iter().chain(settings) {
            command.args(["--set", setting]);
        }
        Server::start(name, &mut command)
    };
    let mut classic = Command::new(options.peer("classic-bookstore")?);
    classic.args(["--listen", "127.0.0.1:0", "--stock", &STOCK.to_string(), "--data"]).arg(data("classic")?);
    Ok(vec![
        quire("quire", &[])?,
        quire("quire_each", &["ledger.commit=each", "catalogue.reads=database"])?,
        Server::start("classic", &mut classic)?,
    ])
}

fn workload(server: &Server, path: &'static str, message: &impl Message) -> anyhow::Result<GrpcWorkload> {
    let classify = |reply: &[u8]| {
        let success = Outcome::decode(reply).is_ok_and(|outcome| outcome.success);
        Endings::own(if success { DONE } else { REFUSED }, false)
    };
    let target = Target::parse(&server.address.to_string(), &TlsArgs::default())?;
    let requests = Requests::constant(message.encode_to_vec());
    let endings = Endings::classified(["done".to_owned(), "refused".to_owned()], Arc::new(classify));
    Ok(GrpcWorkload::new(target, path, Shape::UNARY, requests).endings(endings))
}

fn measure(server: &Server, load: Load) -> anyhow::Result<(Run, Duration)> {
    let workload = match load.method {
        Method::Buy => workload(server, "/bookstore.BookStore/Buy", &ItemNumberRequest { id: BOOK })?,
        Method::Search => {
            workload(server, "/bookstore.BookStore/Search", &BookTopicRequest { topic: TOPIC.to_owned() })?
        }
    };
    let plan = plan(load);
    if let End::After(duration) = load.end {
        // A run of its own, so that what the server spends on it is not counted.
        run(&Plan { end: End::After(duration / 5), ..plan.clone() }, &workload, &mut ())?;
    }
    let before = server.cpu()?;
    let measured = run(&plan, &workload, &mut ())?;
    let spent = server.cpu()?.saturating_sub(before);
    ensure!(measured.errors < measured.requests, "all of {load:?} failed: {:?}", measured.endings);
    Ok((measured, spent))
}

fn plan(load: Load) -> Plan {
    Plan {
        pace: Pace::Closed { ramp_up: Duration::ZERO },
        end: load.end,
        warm_up: Duration::ZERO,
        connections: load.clients,
        in_flight: load.in_flight,
        workers: cores().len().min(load.clients),
        cores: None,
        timeout: Duration::from_secs(30),
        seed: 1,
    }
}

fn restock(server: &Server) -> anyhow::Result<()> {
    let message = RestockRequest { amount: Some(PLENTY) };
    let workload = workload(server, "/bookstore.Admin/Restock", &message)?;
    let once = Load { method: Method::Buy, clients: 1, in_flight: 1, end: End::Count(1) };
    let done = run(&plan(once), &workload, &mut ())?;
    ensure!(done.errors == 0, "a server cannot be restocked: {:?}", done.endings);
    Ok(())
}
