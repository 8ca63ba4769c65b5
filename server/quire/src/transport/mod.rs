//! Runs the services on the engine, and the engine on its threads. Has no rules and no knowledge of services: limits
//! come from the configuration, and counts go to [`counts`].

mod counts;
mod doors;
mod health;
pub(crate) mod local;
mod logged;
mod observer;
pub(crate) mod tls;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    thread::{self, JoinHandle},
};

use hosting::{
    Declared, Error, Guard, Observe, Route, Service, Serving, Site, Warnings,
    access::{AuthPolicy, Scope},
    metrics::{self, Refusals},
};
use operate::{
    MakeBackup, Operate, Reload, Sources, VerifyBackup,
    grpc::{
        OperatorService,
        wire::operator_server::{self, OperatorServer},
    },
    traces::Traces,
};
use prometheus_client::registry::Registry;
use quire_rpc::{
    Encoding, Limits, Server,
    health::HealthReporter,
    rustls::ServerConfig,
    server::{Builder, ConnectionRegistry, Cors, Refusal},
};
use tokio::{
    net::TcpListener,
    runtime::{self, Handle},
    sync::watch::{self, Receiver},
    task::JoinSet,
};

use self::{counts::Counts, doors::Scopes, health::Health, observer::Watch};
use crate::{
    config::Hosts,
    pages::{self, Index, Services},
    process,
    telemetry::CallLog,
};

/// Paths answered even when the server is overloaded.
const ALWAYS_ANSWERED: [&str; 3] = ["/healthz", "/metrics", health::CHECK];
/// Scopes of `quire.Operator`.
const OPERATORS: Declared = Declared { enabled: None, scope: Scope::Admin, operators: &[] };
/// Shorter answers are not compressed: it saves them little at the same fixed cost.
const COMPRESSED_BYTES_MIN: usize = 1024;

/// Settings of the transport.
pub(crate) struct Front {
    pub services: Vec<Box<dyn Service>>,
    /// Requirements of each service, in the same order.
    pub declared: Vec<Declared>,
    pub auth: AuthPolicy,
    /// The main port's address.
    pub address: SocketAddr,
    pub limits: Limits,
    /// The metrics.
    pub metrics: Registry,
    pub refusals: Refusals,
    pub calls: Arc<CallLog>,
    /// Set if calls are traced.
    pub traces: Option<Traces>,
    /// Set for TLS only.
    pub tls: Option<Arc<ServerConfig>>,
    /// Host names accepted on loopback ports.
    pub hosts: Vec<String>,
    /// Web pages that may call.
    pub cors: Cors,
    /// Compression of answers for clients that accept it.
    pub compression: Option<Encoding>,
    /// Threads that serve connections.
    pub threads: usize,
    /// The operators' view.
    pub operate: Operate,
    /// Backs up the data of the services.
    pub backup: BackUp,
    /// Verifies a backup.
    pub verify: VerifyBackup,
    /// Reads settings again.
    pub reload: Reload,
}

/// Makes backups of services.
pub(crate) type BackUp = Box<dyn FnOnce(Services) -> MakeBackup>;

/// The services on their threads, before the main port accepts connections.
pub(crate) struct Transport {
    services: Services,
    server: Server,
    threads: Threads,
    health: Health,
    /// Tasks and ports of services.
    tasks: JoinSet<Result<(), Error>>,
    stop: Receiver<bool>,
}

impl Transport {
    /// Starts the threads and the services; the server stops when `stop` turns true.
    pub(crate) fn start(front: Front, stop: Receiver<bool>) -> Result<Self, Error> {
        let Front { mut services, declared, auth, address, limits, mut metrics, refusals, tls, operate, .. } = front;
        let (backup, verify, reload) = (front.backup, front.verify, front.reload);
        let (hosts, cors, compression, threads) = (front.hosts, front.cors, front.compression, front.threads);
        let threads = Threads::start(threads)?;
        let (is_short, short) = watch::channel(false);
        let (builder, health, mut scopes) = grpc(&services, &declared, &short, &operate);
        let counts = Counts::new(builder.paths());
        let server = Arc::new(OnceLock::new());
        count(&mut metrics, &counts, &server, &refusals, &limits);
        let observer = observer(counts, refusals, front.calls.clone(), front.traces.clone());
        let counted = observer(&builder);
        let builder = builder.limits(limits.clone()).observer(counted).workers(threads.handles());
        let ports: Vec<Route<SocketAddr>> = services.iter().flat_map(|service| service.ports()).collect();
        let mut site = Site::default();
        for (service, declared) in services.iter().zip(&declared) {
            let own = service.http();
            scopes.add_pages(own.pages.iter().map(|(path, _)| *path), declared.scope);
            scopes.add_pages(own.operators.iter().copied(), Scope::Admin);
            site = site.and(own);
        }
        scopes.add_pages(["/metrics"], Scope::Metrics);
        let guard = guard(scopes.clone(), auth.clone(), hosts, operate.registry().clone());
        let workers = threads.handles();
        let mut serving = Serving {
            limits,
            observer,
            guard: Arc::clone(&guard),
            connections: operate.registry().clone(),
            tls: tls.clone(),
            workers,
            stop: stop.clone(),
            tasks: JoinSet::new(),
        };
        let account = serving.limits.memory.clone();
        serving.run_until_stopped(process::watch_memory(account, is_short));
        for service in &mut services {
            service.start(&mut serving)?;
        }
        let services: Services = services.into();
        let metrics = Arc::new(metrics);
        let sources = Sources {
            metrics: pages::metrics(Arc::clone(&metrics)),
            health: pages::health_of_each(Arc::clone(&services), declared, short.clone()),
            backup: backup(Arc::clone(&services)),
            verify,
            reload,
        };
        let stopped = serving.stopped();
        serving.tasks.spawn(async move {
            operate.run(sources, stopped).await;
            Ok(())
        });
        let mut site = pages::describe(pages::site(Arc::clone(&services), short, metrics).and(site), &builder)?;
        let methods: Vec<&str> = builder.paths().collect();
        let fronts = std::mem::take(&mut site.fronts);
        let pages = Index { pages: &site.pages, methods: &methods, ports: &ports }.add_to(site.router);
        let pages = pages::with_fronts(doors::guard_pages(pages, &scopes, &auth, address), fronts);
        let pages = logged::logged(pages, if tls.is_some() { "https" } else { "http" }, front.calls, front.traces);
        let builder = ALWAYS_ANSWERED.into_iter().fold(builder.http(pages).cors(cors), Builder::always_answer);
        let builder = match compression {
            None => builder,
            Some(encoding) => builder.compress(encoding, COMPRESSED_BYTES_MIN),
        };
        let builder = guard(builder, address);
        let built = match tls {
            None => builder,
            Some(tls) => builder.tls(tls),
        }
        .build();
        // Set only here.
        let _ = server.set(built.clone());
        Ok(Self { services, server: built, threads, health, tasks: serving.tasks, stop })
    }

    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// The threads that serve connections.
    pub(crate) fn threads(&self) -> Vec<Handle> {
        self.threads.handles()
    }

    /// Serves until the server stops and every call in flight has been answered or cut.
    pub(crate) async fn serve(self, listener: TcpListener) -> Result<(), Error> {
        let Self { server, threads, health, mut tasks, mut stop, .. } = self;
        let stopped = async {
            // An error means that the sender was dropped, and the server with it.
            drop(stop.wait_for(|stop| *stop).await);
            health.stop().await;
        };
        let served = server.serve(listener, stopped).await;
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        threads.stop();
        Ok(served?)
    }
}

/// Adds a port's host allowlist and required credentials to a server, and its connections to the registry.
fn guard(scopes: Scopes, auth: AuthPolicy, names: Vec<String>, registry: ConnectionRegistry) -> Guard {
    Arc::new(move |builder, address| {
        let builder = doors::guard(builder, &scopes, &auth, address).connections(registry.clone());
        match Hosts::of(address, &names) {
            None => builder,
            Some(hosts) => builder.hosts(move |host| hosts.has(host)),
        }
    })
}

/// The services with those for operators, health and reflection, and the scopes of their methods.
fn grpc(
    services: &[Box<dyn Service>],
    declared: &[Declared],
    short: &Receiver<bool>,
    operate: &Operate,
) -> (Builder, Health, Scopes) {
    let mut scopes = Scopes::default();
    let (reporter, health_service) = HealthReporter::new();
    let mut health = Health::new(reporter);
    let mut builder = Server::builder();
    for (service, declared) in services.iter().zip(declared) {
        let before = builder.services().len();
        builder = service.grpc(builder);
        health.watch(&**service, short.clone(), &builder.services()[before..]);
        scopes.add_services(&builder.services()[before..], declared);
    }
    builder = builder.add_service(OperatorServer::new(OperatorService::new(operate.clone())));
    scopes.add_services(&[operator_server::NAME.to_owned()], &OPERATORS);
    (builder.add_service(health_service).reflection(), health, scopes)
}

/// Makes observers that count into `counts`, log to `calls`, and trace.
fn observer(counts: Counts, refusals: Refusals, calls: Arc<CallLog>, traces: Option<Traces>) -> Observe {
    let warnings = Warnings::default();
    Arc::new(move |builder| {
        let counts = counts.of_server(builder.paths());
        let (refusals, warnings) = (refusals.clone(), warnings.clone());
        Arc::new(Watch { counts, refusals, warnings, calls: calls.clone(), traces: traces.clone() })
    })
}

/// Registers the transport's metrics.
fn count(
    registry: &mut Registry,
    counts: &Counts,
    server: &Arc<OnceLock<Server>>,
    refusals: &Refusals,
    limits: &Limits,
) {
    refusals.show(Refusal::ALL.map(Refusal::name));
    let ours = registry.sub_registry_with_prefix("quire");
    ours.register_collector(Box::new(counts.clone()));
    let (server, memory, connections_max) = (Arc::clone(server), limits.memory.clone(), limits.connections_max.clone());
    metrics::collect(ours, move |page| {
        page.gauge("connections", "Open connections", server.get().map_or(0, Server::connections))?;
        page.gauge("connections_max", "Value of limits.connections", connections_max.get())?;
        page.gauge("buffer_bytes", "Answers and unfinished messages that connections hold", memory.buffers())?;
        page.gauge("memory_bytes", "What limits.memory_bytes bounds, as the account of memory has it", memory.total())?;
        page.gauge("memory_bytes_max", "Value of limits.memory_bytes", memory.bytes_max())?;
        page.gauge("calls_in_flight", "Calls that wait for something", server.get().map_or(0, Server::calls))
    });
}

/// The threads.
struct Threads {
    running: Vec<(Handle, JoinHandle<()>)>,
    stop: watch::Sender<bool>,
}

impl Threads {
    fn start(count: usize) -> io::Result<Self> {
        let stop = watch::Sender::new(false);
        let start = |number| {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let mut stopped = stop.subscribe();
            // An error means that the sender was dropped, which also ends the thread.
            let serve = move || drop(runtime.block_on(stopped.wait_for(|stop| *stop)));
            Ok((handle, thread::Builder::new().name(format!("serve-{number}")).spawn(serve)?))
        };
        let running = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(Self { running, stop })
    }

    fn handles(&self) -> Vec<Handle> {
        self.running.iter().map(|(handle, _)| handle.clone()).collect()
    }

    /// Drops their remaining tasks.
    fn stop(self) {
        self.stop.send_replace(true);
        for (_, thread) in self.running {
            // A panic was already reported on stderr.
            drop(thread.join());
        }
    }
}
