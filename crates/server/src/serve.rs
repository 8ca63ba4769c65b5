//! `quire serve`: builds what the configuration says, runs it, and drains it when told to stop.

use std::{
    io::{self, ErrorKind, Write as _},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bookstore::{Bookstore, grpc::Access};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
    registry::Registry,
};
use tokio::{net::TcpListener, runtime::Builder, signal::unix, sync::watch};

use crate::{
    cli::ServeArgs,
    config::{Config, Port},
    console,
    http::{self, Site},
    process::Process,
    services::{self, Opened, kv::Kv, records::Records, rpcgame::RpcGame},
    signals::{Signals, Stop},
    telemetry,
    transport::{self, Counts, Front},
};

/// The store's file in the data folder.
pub(crate) const FILE_NAME: &str = "bookstore.db";

/// Kept back from the drain for committing and closing the store.
const CLOSING: Duration = Duration::from_secs(2);

/// `quire serve`.
pub(crate) fn command(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    if args.print_config {
        let (shown, warnings) = Config::explain(args)?;
        for warning in warnings {
            eprintln!("quire: {warning}");
        }
        io::stdout().write_all(shown.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let process = Process::started_now();
    let (config, warnings) = Config::of_server(args)?;
    telemetry::init(&config.log)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let done = runtime.block_on(run(config, process));
    // The console's thread may sit in a read that nothing ends.
    runtime.shutdown_background();
    done
}

async fn run(config: Config, process: Process) -> anyhow::Result<ExitCode> {
    let Signals { stop: mut asked, reload } = Signals::install()?;
    // Before the store, so that a server with a wrong file, or a second one started by mistake, changes nothing.
    let tls = config.tls.as_ref().map(transport::tls::server).transpose()?;
    let listener = listen(config.listen, "--listen").await?;
    let address = listener.local_addr()?;
    let tasks_listener = services::tasks::listen(config.tasks.as_ref()).await?;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(process));
    let ours = registry.sub_registry_with_prefix("quire");
    let counts = Counts::default();
    ours.register_collector(Box::new(counts.clone()));
    let opened_at = Instant::now();
    let Opened { store, kv, records, game } = tokio::select! {
        opened = Opened::open(&config, ours) => opened?,
        reason = asked.asked() => {
            // What is half read or half made is left as a crash would leave it, which a start repairs.
            tracing::info!(reason, "stopped before everything was loaded");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let over = game.as_ref().and_then(RpcGame::over);
    let sweeping = kv.as_ref().map(Kv::sweep);
    let reloading = tokio::spawn(reload_when_told(reload, records.clone()));
    let levels = Levels { store: store.clone(), counts: counts.clone() };
    ours.register_collector(Box::new(levels));
    let tasks_port = tasks_listener.as_ref().map(TcpListener::local_addr).transpose()?;
    let ports = tasks_port.map(|address| (address, "tasks, a line each; `quire tasks` asks them"));
    let ports = ports.into_iter().chain(game.iter().flat_map(RpcGame::ports)).collect();
    let stop = watch::Sender::new(false);
    let tasks = services::tasks::start(tasks_listener, config.tasks.as_ref(), ours, &stop.subscribe())?;
    let site = Site::of_operators(http::Pages { store: store.clone(), kv: kv.clone(), registry: Arc::new(registry) });
    let site = site.and(records.as_ref().map(Records::site).unwrap_or_default());
    let front = Front {
        store: store.clone(),
        access: access(&config, address),
        kv: kv.clone(),
        records,
        limits: config.transport,
        counts,
        site,
        ports,
        tls,
        threads: config.threads,
        drain: answering(config.drain),
        game,
    };
    let served = transport::serve(listener, front, stop.subscribe());
    let mut serving = tokio::spawn(async move {
        let served = served.await;
        if served.is_ok() {
            tasks.ended().await;
        }
        served
    });
    if config.kv.as_ref().is_some_and(|kv| kv.durability == ::kv::Durability::Log) {
        Kv::announce(&config.data, address, config.tls.is_some());
    }
    tracing::info!(%address, books = store.books(), loaded_ms = opened_at.elapsed().as_millis(), "listening");
    let console = console::start(store.clone());
    let reason = tokio::select! {
        reason = told_to_stop(console, &mut asked, over) => reason,
        served = &mut serving => bail!("the server ended by itself: {:?}", served?),
    };
    telemetry::take_terminal_back();
    tracing::info!(reason, deadline_seconds = config.drain.as_secs_f64(), "stopping");
    let stopped = drain(&store, kv.as_ref(), &stop, serving, config.drain).await;
    for task in sweeping.into_iter().chain([reloading]) {
        task.abort();
    }
    stopped
}

/// `how` says what chooses the address.
async fn listen(address: SocketAddr, how: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| cannot_listen(address, how, &error))
}

/// As [`listen`], for a service beside the main port: without it, if another program has a port that no one named,
/// the server starts all the same. `without` says what that means.
pub(crate) async fn listen_beside(port: Port, without: &str, how: &str) -> anyhow::Result<Option<TcpListener>> {
    let address = port.address;
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == ErrorKind::AddrInUse && !port.is_named => {
            tracing::warn!(%address, "{without}: another program listens on {address}; choose another port with {how}");
            Ok(None)
        }
        Err(error) => Err(cannot_listen(address, how, &error)),
    }
}

/// Why a port could not be had, and what would be right.
fn cannot_listen(address: SocketAddr, how: &str, error: &io::Error) -> anyhow::Error {
    let why = match error.kind() {
        ErrorKind::AddrInUse => format!("another program does; end it or choose another port with {how}"),
        ErrorKind::PermissionDenied => {
            format!("a port below 1024 needs CAP_NET_BIND_SERVICE; grant it, or choose a port above 1023 with {how}")
        }
        ErrorKind::AddrNotAvailable => {
            format!(
                "this machine has no such address; choose one of its own, or :{} for all, with {how}",
                address.port()
            )
        }
        _ => format!("{error}; choose an address of this machine with {how}"),
    };
    anyhow::anyhow!("cannot listen on {address}: {why}")
}

/// Who may act as operator on a server with this address.
fn access(config: &Config, address: SocketAddr) -> Access {
    match &config.admin_token {
        Some(token) => Access::Token(Arc::clone(token)),
        None if address.ip().is_loopback() => Access::Open,
        None => {
            tracing::warn!(%address, "bookstore.Admin is off: other machines can connect and admin.token is not set");
            Access::Nobody
        }
    }
}

/// Reads the file of records again at each SIGHUP, until the task is ended.
async fn reload_when_told(mut hangup: unix::Signal, records: Option<Records>) {
    while hangup.recv().await.is_some() {
        if let Some(records) = records.as_ref().filter(|records| records.has_file()) {
            records.reload().await;
        } else {
            tracing::info!("SIGHUP: there is nothing to read again, as records.csv is not set");
        }
    }
}

/// The reason why.
async fn told_to_stop(
    console: tokio::sync::oneshot::Receiver<()>,
    stop: &mut Stop,
    over: Option<watch::Receiver<u64>>,
) -> &'static str {
    let left = async {
        // A console that ended without a word (the end of a pipe) leaves the server running.
        if console.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let over = async {
        if let Some(mut ended) = over
            && ended.wait_for(|ended| *ended > 0).await.is_ok()
        {
            return;
        }
        // Without the games nobody can end one any more.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = over => "the game is over",
        signal = stop.asked() => signal,
        () = left => "console",
    }
}

/// The part of the drain in which calls may go on.
fn answering(patience: Duration) -> Duration {
    patience.saturating_sub(CLOSING.min(patience / 2))
}

/// Stops accepting, answers what is in flight, commits, checkpoints and closes, within the deadline.
async fn drain(
    store: &Bookstore,
    kv: Option<&Kv>,
    stop: &watch::Sender<bool>,
    serving: tokio::task::JoinHandle<anyhow::Result<()>>,
    patience: Duration,
) -> anyhow::Result<ExitCode> {
    let deadline = Instant::now() + patience;
    stop.send_replace(true);
    store.end_tails();
    if let Some(kv) = kv {
        kv.end_watches();
    }
    let answered = match tokio::time::timeout(answering(patience), serving).await {
        Ok(served) => {
            served??;
            true
        }
        Err(_) => false,
    };
    let (closing, closing_kv) = (store.clone(), kv.cloned());
    let left = move || deadline.saturating_duration_since(Instant::now());
    let close = move || closing.close(left()) & closing_kv.is_none_or(|kv| kv.close(left()));
    let closed = tokio::task::spawn_blocking(close).await?;
    tracing::info!(answered, closed, "stopped");
    if !answered {
        tracing::warn!("the deadline was over before every call was answered; connections were cut");
    }
    if !closed {
        bail!("the store was not closed in time; everything acknowledged is on disk");
    }
    Ok(ExitCode::SUCCESS)
}

/// Levels read when they are asked for.
#[derive(Debug)]
struct Levels {
    store: Bookstore,
    counts: Counts,
}

impl Collector for Levels {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let levels = [
            ("connections", "Open connections", count(self.counts.connections())),
            ("calls_in_flight", "Calls that wait for something", count(self.counts.calls_in_flight())),
            ("purchases_queued", "Purchases and operator actions that wait for the ledger", count(self.store.queued())),
            ("books", "Books in the catalogue", count(self.store.books())),
            ("log_number", "Number of the newest log entry", self.store.last_number()),
            (
                "store_sound",
                "1 while purchases are taken, 0 while a failed store is read back",
                i64::from(*self.store.sound().borrow()),
            ),
        ];
        for (name, help, level) in levels {
            let gauge = ConstGauge::new(level);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::cannot_listen;

    #[test]
    fn a_port_that_cannot_be_had_is_told_with_what_would_help() {
        let said = |kind| cannot_listen(([127, 0, 0, 1], 80).into(), "--listen", &Error::from(kind)).to_string();
        assert_eq!(
            said(ErrorKind::PermissionDenied),
            "cannot listen on 127.0.0.1:80: a port below 1024 needs CAP_NET_BIND_SERVICE; grant it, or choose a port \
             above 1023 with --listen"
        );
        assert!(said(ErrorKind::AddrInUse).contains("another program does"));
        assert!(said(ErrorKind::AddrNotAvailable).contains("this machine has no such address"));
    }
}
