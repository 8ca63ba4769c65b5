//! The task server as a hosted service: port, threads and shutdown.

use std::{io, net::SocketAddr, thread};

use hosting::{
    Error, Host, Open, Route, Service, Serving,
    access::{AuthPolicy, Scope},
};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::{oneshot, watch},
};

use crate::{metrics::Metrics, server::Server, settings::Settings};

/// The task server and the port that it will serve.
#[derive(Debug)]
pub struct TasksService {
    settings: Settings,
    metrics: Metrics,
    /// `None` if another program has the default port, and once the service has started.
    listener: Option<TcpListener>,
    auth: AuthPolicy,
}

impl Open for TasksService {
    type Settings = Settings;
    const SCOPE: Scope = Scope::Tasks;
    const IS_ON_MAIN_PORT: bool = false;
    const ENABLED: Option<&'static str> = Some("tasks.enabled");

    /// Binds the port.
    async fn open(mut settings: Settings, host: &mut Host<'_>) -> Result<Self, Error> {
        let connections = &mut settings.limits.connections;
        *connections = host.connections.granted_live("tasks.connections", connections);
        let how = "--tasks-listen, or set tasks.enabled=false";
        let listener = host.sockets.listen_beside(settings.listen, "tasks are not served", how)?;
        let metrics = Metrics::register(host.metrics);
        host.handles.offer(metrics.clone());
        Ok(Self { settings, metrics, listener, auth: host.auth.clone() })
    }
}

impl Service for TasksService {
    fn ports(&self) -> Vec<Route<SocketAddr>> {
        let address = self.listener.as_ref().and_then(|listener| listener.local_addr().ok());
        address.map(|address| (address, "tasks, a line each; `quire tasks` sends them")).into_iter().collect()
    }

    /// Serves on separate threads. CPU-bound tasks run in the first one's pool for blocking work, which starts threads
    /// on demand and ends idle ones.
    fn start(&mut self, serving: &mut Serving) -> Result<(), Error> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let address = listener.local_addr()?;
        let listener = listener.into_std()?;
        let runtime = |_| {
            let mut builder = Builder::new_current_thread();
            builder.enable_all().thread_name("tasks-cpu").max_blocking_threads(self.settings.limits.cpu_tasks).build()
        };
        let runtimes = (0..self.settings.threads).map(runtime).collect::<io::Result<Vec<Runtime>>>()?;
        let Some(first) = runtimes.first() else { return Ok(()) };
        let server = Server::new(&self.settings, self.metrics.clone(), first.handle().clone());
        let tls = serving.tls.clone().filter(|_| !address.ip().is_loopback());
        let authenticator = self.auth.authenticator(Some(Scope::Tasks), address);
        let server = server.guarded(authenticator, tls).listed_in(serving.connections.clone());
        for (number, runtime) in runtimes.into_iter().enumerate() {
            let (server, listener, stop) = (server.clone(), listener.try_clone()?, serving.stop.clone());
            let ended = serve(number, runtime, server, listener, stop)?;
            serving.tasks.spawn(async move {
                // Nothing is ever sent; the sender is dropped at the end.
                let _ = ended.await;
                Ok(())
            });
        }
        tracing::info!(%address, "tasks are served");
        Ok(())
    }
}

/// Serves on a thread; the receiver ends once all its clients have their answers.
fn serve(
    number: usize,
    runtime: Runtime,
    server: Server,
    listener: std::net::TcpListener,
    stop: watch::Receiver<bool>,
) -> io::Result<oneshot::Receiver<()>> {
    let (ended, end) = oneshot::channel();
    let serve = move || {
        runtime.block_on(async {
            match TcpListener::from_std(listener) {
                Ok(listener) => server.serve(listener, stop).await,
                Err(error) => tracing::error!(%error, "a thread of the task server cannot listen"),
            }
        });
        // Dropped first, because the runtime may wait for a task whose caller is gone.
        drop(ended);
        runtime.shutdown_background();
    };
    thread::Builder::new().name(format!("tasks-{number}")).spawn(serve)?;
    Ok(end)
}
