//! The key-value experiments: the published mix of calls with simulated work, one lock around the map against a map
//! in which calls do not wait for each other; the same without simulated work; and small values beside Redis and etcd.
//!
//! If there are two cores, the server has the first and the client the second.

mod load;
mod page;
mod peers;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use self::load::{ETCD, KEYS_FIRST, Methods, Published, QUIRE, SMALL_KEYS, Small};
use self::peers::{Etcd, Redis};
use crate::awake::Awake;
use crate::lab::{self, Results};
use crate::server::{Server, on_core};
use crate::{Findings, Options};
use bench::cores::cores;
use bench::measurement::Run;
use bench::plan::{End, Pace, Plan};
use bench::run::run;
use bench::tls::TlsArgs;
use bench::workload::grpc::{GrpcWorkload, Requests, Shape, Target};

/// The stores, as the setting `kv.store` names them.
const STORES: [&str; 2] = ["mutex", "concurrent"];
/// Calls in flight in the published experiment, over so many connections here.
const CALLS_IN_FLIGHT: usize = 100;
const CONNECTIONS: usize = 4;
/// Simulated work of a read and of a write, in milliseconds.
const WORK_MS: [u64; 2] = [10, 50];
/// How long the published load is measured with simulated work, after so long a warm-up: with one lock a call waits
/// for four seconds.
const WITH_WORK: Duration = Duration::from_secs(6);
const WITH_WORK_WARM_UP: Duration = Duration::from_secs(1);
/// One call in so many may find its key gone or not yet there, because it was overtaken by hundreds of others.
const OVERTAKEN_PART_MAX: u64 = 20;
/// How long every other load is.
const POINT: Duration = Duration::from_millis(1500);
const WARM_UP: Duration = Duration::from_millis(300);

/// Who answers small calls. Those that are not installed are left out.
const SMALL_SUBJECTS: [&str; 3] = ["quire", "redis", "etcd"];
/// Connections and calls in flight on each: what Redis calls pipelining.
const BATCHINGS: [(usize, usize); 3] = [(10, 100), (10, 10), (100, 1)];

/// The other services stay out, with the ports they would take; so do further threads.
const ALONE: [&str; 3] = ["rpcgame.enabled=false", "tasks.enabled=false", "server.threads=1"];

/// The core of the servers and that of the clients.
#[derive(Clone, Copy, Debug)]
struct Cores {
    server: Option<usize>,
    client: Option<usize>,
}

impl Cores {
    fn of_this_machine() -> Self {
        match cores()[..] {
            [server, client, ..] => Self { server: Some(server), client: Some(client) },
            _ => Self { server: None, client: None },
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct SmallLoad {
    small: Small,
    connections: usize,
    in_flight: usize,
}

fn small_name(small: Small, (connections, in_flight): (usize, usize)) -> String {
    let name = match small {
        Small::Read => "read",
        Small::Write => "write",
        Small::Mix => "mix",
    };
    format!("{name}_{connections}x{in_flight}")
}

fn small_loads(kinds: &[Small]) -> Vec<(String, SmallLoad)> {
    let load = |small, batching: (usize, usize)| {
        let load = SmallLoad { small, connections: batching.0, in_flight: batching.1 };
        (small_name(small, batching), load)
    };
    BATCHINGS.iter().flat_map(|batching| kinds.iter().map(move |small| load(*small, *batching))).collect()
}

/// What a user would pick instead, as far as it is installed.
#[derive(Clone, Debug, Default)]
struct Peers {
    /// What each says of its version.
    versions: Vec<String>,
    /// What is not there, and how it would come.
    missing: Vec<String>,
}

/// Everything that was measured.
struct Measurements {
    with_work: Results,
    without_work: Results,
    small: Results,
    peers: Peers,
}

/// Starts the servers, measures, and says what was found.
pub(super) fn run_experiment(options: &Options) -> anyhow::Result<Findings> {
    let folder = tempfile::Builder::new().prefix("data-").tempdir_in(&options.out).context("no folder for servers")?;
    let cores = Cores::of_this_machine();
    let small = |subjects: usize, kinds: usize| subjects * kinds * BATCHINGS.len();
    let [has_redis, has_etcd] = ["redis-server", "etcd"].map(|name| usize::from(peers::find(name).is_some()));
    // With and without simulated work, once more with awake cores, and the small values.
    options.progress.expect(3 * options.rounds, WITH_WORK_WARM_UP + WITH_WORK);
    let short = STORES.len() + small(1 + has_redis + has_etcd, 2) + small(1 + has_etcd, 1);
    options.progress.expect(short * options.rounds, WARM_UP + POINT);
    let work = WORK_MS.map(|ms| ms.to_string());
    let [read, write] = [format!("kv.read_delay_ms={}", work[0]), format!("kv.write_delay_ms={}", work[1])];
    let data = |name: &str| folder.path().join(name);
    let plan = published_plan(cores, End::After(WITH_WORK), WITH_WORK_WARM_UP);
    let servers = published_servers(options, &data("with_work"), cores, &[&read, &write])?;
    let mut with_work = published_load(options, &servers, &plan, "with_work")?;
    // The lock's four seconds a call would not show a tenth of a millisecond.
    let awake = Awake::keep([cores.server, cores.client].into_iter().flatten()).context("cannot start a thread")?;
    with_work.extend(published_load(options, &servers[1..], &plan, "with_work_awake")?);
    drop((awake, servers));
    let plan = published_plan(cores, End::After(POINT), Duration::ZERO);
    let servers = published_servers(options, &data("without_work"), cores, &[])?;
    let without_work = published_load(options, &servers, &plan, "without_work")?;
    drop(servers);
    let (small, peers) = small_values(options, &data("small"), cores)?;
    page::findings(&Measurements { with_work, without_work, small, peers })
}

fn quire(options: &Options, data: &Path, cores: Cores, settings: &[&str]) -> anyhow::Result<Server> {
    std::fs::create_dir_all(data).with_context(|| format!("cannot make {}", data.display()))?;
    let mut command = Command::new(&options.quire);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    for setting in ALONE.iter().chain(settings) {
        command.args(["--set", setting]);
    }
    on_core(cores.server, || Server::start("quire", &mut command))
}

/// A server, the name of its store, and the published load on it.
struct Subject {
    store: &'static str,
    server: Server,
    mix: GrpcWorkload,
}

/// A server of each store, with the first keys there.
fn published_servers(
    options: &Options,
    folder: &Path,
    cores: Cores,
    settings: &[&str],
) -> anyhow::Result<Vec<Subject>> {
    let start = |store: &'static str| {
        let setting = format!("kv.store={store}");
        let settings: Vec<&str> = settings.iter().copied().chain([&*setting]).collect();
        let server = quire(options, &folder.join(store), cores, &settings)?;
        let published = Published::new(options.seed);
        let first = workload(&server, QUIRE.create, published.first())?;
        let done = run(&published_plan(cores, End::Count(KEYS_FIRST), Duration::ZERO), &first, &mut ())?;
        ensure!(done.errors == 0, "the first keys could not be made: {:?}", done.endings);
        let mix = workload(&server, QUIRE.read, published.mix())?;
        Ok(Subject { store, server, mix })
    };
    STORES.into_iter().map(start).collect()
}

fn published_load(options: &Options, subjects: &[Subject], plan: &Plan, name: &str) -> anyhow::Result<Results> {
    let stores: Vec<&'static str> = subjects.iter().map(|subject| subject.store).collect();
    lab::in_turns(
        &options.progress,
        options.rounds,
        options.seed,
        &stores,
        &[(name.to_owned(), ())],
        &mut |subject, ()| {
            let Subject { store, server, mix } = &subjects[subject];
            let (measured, spent) = measure(server, mix, plan)?;
            let most = measured.requests / OVERTAKEN_PART_MAX;
            ensure!(measured.errors <= most, "too many calls to {store} failed: {:?}", measured.endings);
            Ok((measured, spent))
        },
    )
}

fn published_plan(cores: Cores, end: End, warm_up: Duration) -> Plan {
    plan(cores, CONNECTIONS, CALLS_IN_FLIGHT / CONNECTIONS, end, warm_up)
}

fn small_values(options: &Options, folder: &Path, cores: Cores) -> anyhow::Result<(Results, Peers)> {
    let mut peers = Peers::default();
    let quire = quire(options, folder, cores, &[])?;
    fill(&quire, QUIRE, cores)?;
    let redis = redis(&mut peers, cores)?;
    let etcd = etcd(&mut peers, options, cores)?;
    let present = [true, redis.is_some(), etcd.is_some()];
    let subjects: Vec<&'static str> =
        SMALL_SUBJECTS.into_iter().zip(present).filter_map(|(subject, there)| there.then_some(subject)).collect();
    let ask = |subject: &str, load: &SmallLoad| -> anyhow::Result<(Run, Duration)> {
        let SmallLoad { small, connections, in_flight } = *load;
        let grpc = |server: &Server, methods: Methods| {
            let plan = plan(cores, connections, in_flight, End::After(POINT), Duration::ZERO);
            let calls = workload(server, methods.read, load::small_calls(methods, small))?;
            let (measured, spent) = measure(server, &calls, &plan)?;
            ensure!(measured.errors == 0, "{subject} failed: {:?}", measured.endings);
            Ok((measured, spent))
        };
        match (subject, &redis, &etcd) {
            ("redis", Some(redis), _) => redis.run(small, connections, in_flight, POINT),
            ("etcd", _, Some(etcd)) => grpc(&etcd.server, ETCD),
            _ => grpc(&quire, QUIRE),
        }
    };
    let of = |subjects: &[&'static str], kinds: &[Small]| {
        let loads = small_loads(kinds);
        lab::in_turns(&options.progress, options.rounds, options.seed, subjects, &loads, &mut |subject, load| {
            ask(subjects[subject], load)
        })
    };
    let mut results = of(&subjects, &[Small::Read, Small::Write])?;
    // Redis' benchmark makes one kind of call at a time; its part of the mix is worked out from these.
    let mixing: Vec<&'static str> = subjects.iter().copied().filter(|subject| *subject != "redis").collect();
    results.extend(of(&mixing, &[Small::Mix])?);
    Ok((results, peers))
}

fn redis(peers: &mut Peers, cores: Cores) -> anyhow::Result<Option<Redis>> {
    let (Some(server), Some(benchmark)) = (peers::find("redis-server"), peers::find("redis-benchmark")) else {
        peers.missing.push("Redis is not installed: apt-get install redis-server redis-tools".to_owned());
        return Ok(None);
    };
    peers.versions.push(peers::version(&server));
    Redis::start(&server, benchmark, cores.server, cores.client).map(Some)
}

fn etcd(peers: &mut Peers, options: &Options, cores: Cores) -> anyhow::Result<Option<Etcd>> {
    let Some(program) = peers::find("etcd") else {
        peers.missing.push("etcd is not installed: apt-get install etcd-server".to_owned());
        return Ok(None);
    };
    peers.versions.push(peers::version(&program));
    let etcd = Etcd::start(&program, &options.out, cores.server)?;
    fill(&etcd.server, ETCD, cores)?;
    Ok(Some(etcd))
}

/// Puts every small entry there.
fn fill(server: &Server, methods: Methods, cores: Cores) -> anyhow::Result<()> {
    let plan = plan(cores, 10, 100, End::Count(SMALL_KEYS), Duration::ZERO);
    let done = run(&plan, &workload(server, methods.create, load::small_creations())?, &mut ())?;
    ensure!(done.errors == 0, "a server cannot be filled: {:?}", done.endings);
    Ok(())
}

fn workload(server: &Server, path: &str, requests: Requests) -> anyhow::Result<GrpcWorkload> {
    let target = Target::parse(&server.address.to_string(), &TlsArgs::default())?;
    Ok(GrpcWorkload::new(target, path, Shape::UNARY, requests))
}

/// Without a warm-up in the plan there is a run before, so that what the server spends on it is not counted. With one
/// it is counted, and the sum is scaled: for loads that must not come to a stop between the two.
fn measure(server: &Server, workload: &GrpcWorkload, plan: &Plan) -> anyhow::Result<(Run, Duration)> {
    if plan.warm_up.is_zero() {
        run(&Plan { end: End::After(WARM_UP), ..plan.clone() }, workload, &mut ())?;
    }
    let before = server.cpu()?;
    let measured = run(plan, workload, &mut ())?;
    let spent = server.cpu()?.saturating_sub(before);
    let End::After(duration) = plan.end else { return Ok((measured, spent)) };
    let share = duration.as_secs_f64() / (duration + plan.warm_up).as_secs_f64();
    Ok((measured, spent.mul_f64(share)))
}

fn plan(cores: Cores, connections: usize, in_flight: usize, end: End, warm_up: Duration) -> Plan {
    Plan {
        pace: Pace::Closed { ramp_up: Duration::ZERO },
        end,
        warm_up,
        connections,
        in_flight,
        workers: 1,
        cores: cores.client.map(|core| vec![core]),
        timeout: Duration::from_secs(30),
        seed: 1,
    }
}
