//! The task server: its listener, its threads and its end. Must not know the line protocol.

use std::{
    io::Write as _,
    process::ExitCode,
    thread::{self, JoinHandle},
};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tasks::{
    Concurrency, Metrics, Server,
    chain::{self, Forecast, Plan},
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    sync::{oneshot, watch},
};

use crate::{
    address::Target,
    cli::ChainArgs,
    config::{Tasks, ports},
};

/// Takes the port, before anything is changed or told; nothing if the service is off.
pub(crate) async fn listen(config: Option<&Tasks>) -> anyhow::Result<Option<TcpListener>> {
    let Some(config) = config else { return Ok(None) };
    let address = config.listen;
    let bound = TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "tasks cannot listen on {address}: another program does; end it, choose another port with --tasks-listen, \
             or set tasks.enabled=false"
        ),
        _ => anyhow::anyhow!(
            "tasks cannot listen on {address}: {error}; choose an address of this machine with --tasks-listen"
        ),
    });
    bound.map(Some)
}

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

/// `quire tasks`: asks chains of a server.
pub(crate) fn command(args: &ChainArgs) -> anyhow::Result<ExitCode> {
    let plan = Plan { clients: args.clients, requests: args.requests, seed: args.seed };
    let target = Target::parse_plain(&args.address, ports::TASKS)?.authority();
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let asking = async {
        // A name may have several addresses; every client uses the one that answers.
        let found = TcpStream::connect(&target).await.and_then(|stream| stream.peer_addr());
        let address = found.with_context(|| format!("cannot connect to {target}"))?;
        anyhow::Ok(chain::run(address, plan).await?)
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
