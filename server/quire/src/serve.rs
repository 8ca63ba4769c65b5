//! `quire serve`: opens the configured services, serves them, and drains on a stop request.

use std::{
    io,
    net::SocketAddr,
    path::{self, Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use hosting::{
    Choice, Error, Handles, Host, Service, Sockets,
    access::{AuthPolicy, Credentials},
    metrics::{self, Refusals},
};
use operate::{
    Operate, Reload,
    traces::{self, Exporting, Traces},
};
use prometheus_client::{metrics::info::Info, registry::Registry};
use quire_rpc::{
    Limits,
    client::Channel,
    server::{ConnectionRegistry, Cors},
};
use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
    task::{JoinHandle, JoinSet},
};

use crate::{
    cli::ServeArgs,
    commands::backup,
    config::{self, Config, Current, reference},
    console,
    manager::{self, Manager},
    pages::Services,
    process::{self, Descriptors, Disk, Process},
    reload::{self, Files},
    telemetry::{self, CallLog, Filter},
    transport::{
        Front, Transport,
        tls::{self, Certificate},
    },
};

/// Part of the drain reserved for closing the services.
const CLOSING: Duration = Duration::from_secs(2);

/// Longest time at the end for spans that are not exported yet.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// Exit code for SIGINT, as in shells.
const INTERRUPTED: i32 = 130;

/// `quire serve`.
pub(crate) fn command(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    if args.print_config {
        reference::show(&args.config, args.settings()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let process = Process::started_now();
    let sockets = manager::passed_sockets()?;
    let (config, warnings) = Config::of_server(args)?;
    let filter = telemetry::init(&config.log)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let done = runtime.block_on(run(config, args.clone(), filter, process, sockets));
    // Does not wait, because the console's thread may block in a read forever.
    runtime.shutdown_background();
    telemetry::flush();
    done
}

async fn run(
    config: Config,
    args: ServeArgs,
    filter: Filter,
    started: Process,
    mut sockets: Sockets,
) -> anyhow::Result<ExitCode> {
    let calls = config.log.calls.log();
    let (settings, data) = (config::file(&args.config).map_or("none".into(), absolute), absolute(&config.data));
    let (traces, exporting) = traces(&config)?.unzip();
    let descriptors = Descriptors::raised();
    let connections = descriptors.share(config.connections.clone());
    let current =
        Current::new(args, &config, filter, (calls.clone(), traces.clone()), (descriptors, connections.clone()));
    let (current, (ask, asked)) = (Arc::new(current), mpsc::channel(1));
    let Signals { stop: mut signals, reload: hangup } = Signals::install()?;
    // Before any service, so that a server with a bad file, or a second one started by mistake, changes nothing.
    let (tls, certificate) = config.tls.as_ref().map(tls::server).transpose()?.unzip();
    let has_credentials = config.tokens.is_some() || config.admin_token.is_some();
    let credentials = Credentials::open(config.tokens, config.admin_token.as_deref())?;
    let auth = AuthPolicy::new(Arc::new(credentials), config.open);
    let listener = sockets.listen(config.listen, "--listen").map_err(plain)?;
    let address = listener.local_addr()?;
    let manager = Manager::of_environment();
    manager.status("opening the services").await;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(started));
    let ours = registry.sub_registry_with_prefix("quire");
    show(ours, certificate.clone(), config.data.clone(), traces.clone());
    let refusals = Refusals::register(ours);
    let operate = Operate::new(ConnectionRegistry::default());
    let mut handles = Handles::default();
    handles.offer(config.in_force);
    handles.offer(operate.clone());
    let backup = backup::of_services(config.data.clone());
    let host = Host {
        data: config.data,
        address,
        is_tls: tls.is_some(),
        auth: auth.clone(),
        sockets: &mut sockets,
        connections: connections.clone(),
        message_bytes_max: config.limits.message_bytes_max,
        refusals: refusals.clone(),
        handles,
        metrics: ours,
    };
    let opened_at = Instant::now();
    let declared = config.services.iter().map(|service| service.declared()).collect();
    let services = tokio::select! {
        opened = open(config.services, host) => opened?,
        reason = signals.received() => {
            // Unfinished work is left as after a crash; the next start repairs it.
            manager.stopping(reason).await;
            tracing::info!(reason, "stopped before everything was loaded");
            return Ok(ExitCode::SUCCESS);
        }
    };
    sockets.refuse_unused().map_err(plain)?;
    let stop = watch::Sender::new(false);
    let limits = Limits {
        connections_max: connections.granted_live("limits.connections", &config.limits.connections_max),
        refusals_max: descriptors.refusals(),
        drain_timeout: answering(config.drain),
        ..config.limits
    };
    let cors = Cors::origins(config.cors_origins);
    if has_credentials && tls.is_none() && !address.ip().is_loopback() {
        tracing::warn!(%address, "tokens come in clear text here: set tls.certificate and tls.key, or have a proxy speak TLS");
    }
    let ports = services.iter().flat_map(|service| service.ports());
    let ports = ports.map(|(address, what)| format!("{address} ({what})")).collect::<Vec<_>>().join(", ");
    let front = Front {
        services,
        declared,
        auth: auth.clone(),
        address,
        limits,
        metrics: registry,
        refusals,
        calls: calls.clone(),
        traces,
        tls,
        hosts: config.hosts,
        cors,
        compression: config.compression,
        threads: config.threads,
        operate: operate.clone(),
        backup,
        verify: Box::new(backup::verify),
        reload: reload(Arc::clone(&current), ask),
    };
    let transport = Transport::start(front, stop.subscribe()).map_err(plain)?;
    let (services, threads) = (Arc::clone(transport.services()), transport.threads());
    let serving = tokio::spawn(transport.serve(listener));
    descriptors.log();
    descriptors.warn(&config.connections_set, &connections);
    log_places(address, [settings, data, ports], opened_at);
    manager.ready(address).await;
    let mut beside = left_out(calls.clone());
    let files = files(current, &services, certificate, auth);
    beside.spawn(reload::at_each(hangup, asked, files, manager.clone(), address));
    beside.spawn(manager.clone().watch(threads));
    let drain = config.drain;
    Running { services, operate, serving, beside, stop, signals, manager, calls, exporting, drain }
        .until_stopped()
        .await
}

/// Logs where the server, its settings file, its data and its other ports are.
fn log_places(address: SocketAddr, [settings, data, ports]: [String; 3], opened_at: Instant) {
    let (version, loaded_ms) = (env!("CARGO_PKG_VERSION"), opened_at.elapsed().as_secs_f64() * 1000.0);
    // The first address is the one that programs look for.
    tracing::info!(%address, version, settings, data, ports, loaded_ms, "listening");
    if cfg!(debug_assertions) {
        tracing::info!("built without optimisation: a call costs some ten times what it costs in a release build");
    }
}

/// Tasks that log how many lines were left out.
fn left_out(calls: Arc<CallLog>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(telemetry::show_left_out());
    tasks.spawn(calls.show_left_out());
    tasks
}

/// A server whose ports are open.
struct Running {
    services: Services,
    operate: Operate,
    serving: JoinHandle<Result<(), Error>>,
    /// Work that ends with it.
    beside: JoinSet<()>,
    stop: watch::Sender<bool>,
    signals: Stop,
    manager: Manager,
    calls: Arc<CallLog>,
    exporting: Option<Exporting>,
    /// Longest time from the stop signal to the end.
    drain: Duration,
}

impl Running {
    /// Serves until a stop is requested, and drains.
    async fn until_stopped(self) -> anyhow::Result<ExitCode> {
        let Self { services, operate, mut serving, mut beside, stop, mut signals, manager, .. } = self;
        let (calls, exporting, deadline) = (self.calls, self.exporting, self.drain);
        let reason = tokio::select! {
            reason = shutdown_requested(&services, operate, &mut signals) => reason,
            served = &mut serving => bail!("the server ended by itself: {:?}", served?),
        };
        telemetry::take_terminal_back();
        manager.stopping(reason).await;
        // A warning, so that every usual level logs it.
        tracing::warn!(reason, deadline_seconds = deadline.as_secs_f64(), "stopping");
        let drained = async {
            let until = Instant::now() + deadline;
            let stopped = drain(services, &stop, serving, deadline).await;
            if let Some(exporting) = exporting {
                exporting.finish(until.saturating_duration_since(Instant::now()).min(LAST_SPANS)).await;
            }
            stopped
        };
        tokio::select! {
            stopped = drained => {
                beside.abort_all();
                telemetry::show_left_out_now();
                calls.show_left_out_now();
                stopped
            }
            () = signals.interrupted() => {
                tracing::warn!("a second Ctrl-C: connections are cut; everything acknowledged is on disk");
                telemetry::flush();
                // Returning would wait for the calls being cut off.
                std::process::exit(INTERRUPTED)
            }
        }
    }
}

/// The path as the log has it.
fn absolute(path: &Path) -> String {
    path::absolute(path).as_deref().unwrap_or(path).display().to_string()
}

/// Traces of calls and their export, if there is a collector.
fn traces(config: &Config) -> anyhow::Result<Option<(Traces, Exporting)>> {
    if config.trace_endpoint.is_empty() {
        return Ok(None);
    }
    let mut builder = Channel::builder(&config.trace_endpoint)?.settings(traces::settings());
    if config.trace_endpoint.starts_with("https:") {
        builder = builder.tls(tls::client(None, None)?)?;
    }
    Ok(Some(Traces::start(builder.connect_lazy()?, config.traced)))
}

/// Registers the metrics of the program, the certificate, the disk, the newest backup and traces.
fn show(registry: &mut Registry, certificate: Option<Arc<Certificate>>, data: PathBuf, traces: Option<Traces>) {
    if let Some(traces) = traces {
        metrics::collect(registry, move |page| traces.show(page));
    }
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let build = [("version", env!("CARGO_PKG_VERSION")), ("profile", profile), ("arch", std::env::consts::ARCH)];
    registry.register("build", "Version of the program, and how it was built", Info::new(build));
    if let Some(certificate) = certificate {
        metrics::collect(registry, move |page| {
            let help = "Seconds until the server's certificate expires";
            page.gauge("tls_certificate_expires_seconds", help, certificate.expires_in_seconds())
        });
    }
    metrics::collect(registry, move |page| {
        if let Some(Disk { all, used, free }) = process::disk(&data) {
            page.gauge("disk_bytes", "Size of the disk of the data folder", all)?;
            page.gauge("disk_used_bytes", "Bytes of that disk that are in use", used)?;
            page.gauge("disk_free_bytes", "Bytes of that disk that the server may still use", free)?;
        }
        let Some(age) = backup::age(&data) else { return Ok(()) };
        page.seconds("backup_age_seconds", "Time since the newest backup of the data folder", age)
    });
}

/// Opens the services in order.
async fn open(chosen: Vec<Box<dyn Choice>>, mut host: Host<'_>) -> anyhow::Result<Vec<Box<dyn Service>>> {
    let mut services = Vec::new();
    for service in chosen {
        services.push(service.open(&mut host).await.map_err(plain)?);
    }
    Ok(services)
}

/// Converts the error, keeping its cause.
fn plain(error: Error) -> anyhow::Error {
    anyhow::Error::from_boxed(error)
}

/// Reads the settings for an operator, and has the other files read.
fn reload(current: Arc<Current>, ask: mpsc::Sender<()>) -> Reload {
    Box::new(move || {
        let reloaded = current.read_now()?;
        // If it is full, a reading that begins later is asked for already.
        let _ = ask.try_send(());
        Ok(reloaded)
    })
}

/// Files that are read again at each SIGHUP.
fn files(
    current: Arc<Current>,
    services: &Services,
    certificate: Option<Arc<Certificate>>,
    auth: AuthPolicy,
) -> Vec<Files> {
    let settings = Files::small("the settings", move || current.read_in_turn()).at_signals();
    let mut files = vec![settings, Files::small("the tokens", move || auth.reload())];
    if let Some(certificate) = certificate {
        files.push(Files::small("the certificate and its key", move || certificate.reload()));
    }
    files.extend((0..services.len()).map(|place| {
        let services = Arc::clone(services);
        Files::large("the files of a service", move || {
            let services = Arc::clone(&services);
            async move { services[place].reload().await }
        })
    }));
    files
}

/// Waits for a stop request from a signal, the console or a service; returns its reason.
async fn shutdown_requested(services: &Services, operate: Operate, signals: &mut Stop) -> &'static str {
    let console = console::start(services, operate);
    let left = async {
        // A console that ended without a stop command (the end of a pipe) leaves the server running.
        if console.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let mut over: FuturesUnordered<_> = services.iter().map(|service| service.over()).collect();
    tokio::select! {
        Some(reason) = over.next() => reason,
        signal = signals.received() => signal,
        () = left => "console",
    }
}

/// Part of the drain in which calls may continue.
fn answering(drain: Duration) -> Duration {
    drain.saturating_sub(CLOSING.min(drain / 2))
}

/// Stops accepting, finishes calls in flight, and closes the services, within the deadline.
async fn drain(
    services: Services,
    stop: &watch::Sender<bool>,
    serving: JoinHandle<Result<(), Error>>,
    drain: Duration,
) -> anyhow::Result<ExitCode> {
    let deadline = Instant::now() + drain;
    stop.send_replace(true);
    for service in services.iter() {
        service.drain();
    }
    let answered = match tokio::time::timeout(answering(drain), serving).await {
        Ok(served) => {
            served?.map_err(plain)?;
            true
        }
        Err(_) => false,
    };
    let left = move || deadline.saturating_duration_since(Instant::now());
    let closing = Arc::clone(&services);
    let close = move || closing.iter().fold(true, |closed, service| service.close(left()) & closed);
    let closed = tokio::task::spawn_blocking(close).await?;
    tracing::info!(answered, closed, "stopped");
    if !answered {
        tracing::warn!("the deadline was over before every call was answered; connections were cut");
    }
    if !closed {
        let trouble = services.iter().find_map(|service| service.trouble());
        bail!(
            trouble
                .unwrap_or_else(|| "the store was not closed in time; everything acknowledged is on disk".to_owned())
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Handlers; once installed, none of these signals ends the process by itself.
struct Signals {
    stop: Stop,
    /// SIGHUP: read files again.
    reload: Signal,
}

/// SIGINT and SIGTERM: drain and stop.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Installs the handlers; a signal that comes before the server waits is not lost.
    fn install() -> io::Result<Self> {
        let stop = Stop { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? };
        Ok(Self { stop, reload: signal(SignalKind::hangup())? })
    }
}

impl Stop {
    /// Waits for either, and returns its name.
    async fn received(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// Waits for SIGINT.
    async fn interrupted(&mut self) {
        self.interrupt.recv().await;
    }
}
