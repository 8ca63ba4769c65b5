//! The task server: its listener, its threads and its end. Must not know the line protocol.

use std::{
    cell::Cell,
    io::Write as _,
    net::SocketAddr,
    pin::pin,
    process::ExitCode,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tasks::{
    Concurrency, Metrics, Server,
    chain::{self, Forecast, Outcome, Plan},
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    sync::{oneshot, watch},
    time::timeout,
};

use crate::{
    address::Target,
    cli::ChainArgs,
    config::{Tasks, ports},
    serve,
};

/// Takes the port, before anything is changed or told; nothing if the service is off.
pub(crate) async fn listen(config: Option<&Tasks>) -> anyhow::Result<Option<TcpListener>> {
    match config {
        Some(config) => serve::listen_beside(config.listen, "tasks are not served", HOW).await,
        None => Ok(None),
    }
}

/// What chooses the port.
const HOW: &str = "--tasks-listen, or set tasks.enabled=false";

/// The running service.
pub(crate) struct Running {
    threads: Vec<(JoinHandle<()>, oneshot::Receiver<()>)>,
}

/// Serves on threads of its own until `stop` turns true. CPU-bound tasks run in the first one's pool for blocking
/// work, which makes threads as they are needed and ends those that are not.
pub(crate) fn start(
    listener: Option<TcpListener>,
    config: Option<&Tasks>,
    registry: &mut Registry,
    stop: &watch::Receiver<bool>,
) -> anyhow::Result<Running> {
    let (Some(listener), Some(config)) = (listener, config) else { return Ok(Running { threads: Vec::new() }) };
    let address = listener.local_addr()?;
    let listener = listener.into_std()?;
    let runtime = || {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().thread_name("tasks-cpu").max_blocking_threads(config.service.limits.cpu_tasks);
        builder.build().context("cannot start a runtime for tasks")
    };
    let runtimes = (0..config.threads).map(|_| runtime()).collect::<anyhow::Result<Vec<Runtime>>>()?;
    let Some(first) = runtimes.first() else { return Ok(Running { threads: Vec::new() }) };
    let server = Server::new(&config.service, Metrics::register(registry), first.handle().clone());
    let serve = |(number, runtime): (usize, Runtime)| {
        let (server, listener, stop) = (server.clone(), listener.try_clone()?, stop.clone());
        let (ended, end) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => server.serve(listener, stop).await,
                    Err(error) => tracing::error!(%error, "a thread of the task server cannot listen"),
                }
            });
            // Told first, because the runtime may wait for a task that nobody needs any more.
            drop(ended);
            runtime.shutdown_background();
        };
        Ok((thread::Builder::new().name(format!("tasks-{number}")).spawn(serve)?, end))
    };
    let threads = runtimes.into_iter().enumerate().map(serve).collect::<anyhow::Result<Vec<_>>>()?;
    tracing::info!(%address, "tasks are served");
    Ok(Running { threads })
}

impl Running {
    /// Waits until every client has its answers.
    pub(crate) async fn ended(self) {
        for (thread, end) in self.threads {
            // Nothing is ever sent; the sender goes when the thread is done.
            let _ = end.await;
            drop(thread);
        }
    }
}

/// How often a run that takes long says how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// Asks the chains and tells the progress.
async fn run(address: SocketAddr, plan: Plan) -> anyhow::Result<Outcome> {
    let (replies, start) = (Cell::new(0), Instant::now());
    let mut running = pin!(chain::run_telling(address, plan, &replies));
    loop {
        if let Ok(outcome) = timeout(TOLD_EVERY, &mut running).await {
            return Ok(outcome?);
        }
        let (replies, all) = (replies.get(), plan.clients * plan.requests);
        eprintln!("{replies} of {all} replies after {:.0} s", start.elapsed().as_secs_f64());
    }
}

/// `quire tasks`: asks chains of a server.
pub(crate) fn command(args: &ChainArgs) -> anyhow::Result<ExitCode> {
    let plan = Plan { clients: args.clients, requests: args.requests, seed: args.seed };
    let target = Target::parse_plain(&args.address, ports::TASKS)?.authority();
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let asking = async {
        // A name may have several addresses; every client uses the one that answers.
        let found = TcpStream::connect(&target).await.and_then(|stream| stream.peer_addr());
        let address = found.map_err(|error| {
            anyhow::anyhow!(
                "cannot connect to {target}: {error}; start a server with `quire serve` or name another address"
            )
        })?;
        run(address, plan).await
    };
    let outcome = runtime.block_on(asking)?;
    let forecast = Forecast::new(plan);
    anyhow::ensure!(
        outcome.last == forecast.last,
        "the server answered wrongly: the last replies are {:?} and should be {:?}",
        outcome.last,
        forecast.last
    );
    let seconds = |cache| forecast.bound(Concurrency::Task, cache).as_secs_f64();
    writeln!(
        std::io::stdout(),
        "sum {}, as it should be\n{:.4} s, of which {:.4} s to connect\nthe shortest possible on a fresh server: {:.3} s with a cache, {:.3} s without",
        outcome.sum(),
        outcome.elapsed.as_secs_f64(),
        outcome.connecting.as_secs_f64(),
        seconds(true),
        seconds(false)
    )?;
    Ok(ExitCode::SUCCESS)
}
