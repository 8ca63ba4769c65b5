//! The game as a hosted service: on the main port, on its own gRPC port, and by the lean protocol on a third.

use std::{future, net::SocketAddr};

use hosting::{
    Connections, Error, Host, Open, Pending, Route, Service, Serving,
    access::{AuthPolicy, Scope},
    metrics,
};
use quire_rpc::{Server, health::HealthReporter, server::Builder};
use tokio::net::TcpListener;

use crate::{
    grpc::{
        GameService, StreamService,
        wire::{rpc_game_server::RpcGameServer, rpc_game_stream_server::RpcGameStreamServer},
    },
    lean,
    metrics::write,
    registry::Games,
    settings::{LeanLimits, PORT_CONNECTIONS, Settings},
};

/// Concurrent calls on a connection to the game's own port, where windows are wide.
const CALLS_PER_CONNECTION: u32 = 4096;
/// A stream's window on that port: frames of many messages are the usual traffic.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// The games, and their ports.
#[derive(Debug)]
pub struct RpcGameService {
    games: Games,
    grpc: Option<TcpListener>,
    lean: Option<TcpListener>,
    lean_limits: LeanLimits,
    once: bool,
    connections: Connections,
    auth: AuthPolicy,
}

impl Open for RpcGameService {
    type Settings = Settings;
    const SCOPE: Scope = Scope::Play;
    const ENABLED: Option<&'static str> = Some("rpcgame.enabled");

    /// Binds the ports.
    async fn open(settings: Settings, host: &mut Host<'_>) -> Result<Self, Error> {
        let Settings { listen, lean_listen, once, games, lean: mut lean_limits } = settings;
        let connections = &mut lean_limits.connections_max;
        *connections = host.connections.granted_live("rpcgame.lean_connections", connections);
        let (mut grpc, mut lean) = (None, None);
        if let Some(port) = listen {
            let without = "the RPC game is served on the main port only";
            grpc = host.sockets.listen_beside(port, without, "--set rpcgame.listen=ADDRESS")?;
        }
        if let Some(port) = lean_listen {
            let without = "the lean protocol of the RPC game is not served";
            lean = host.sockets.listen_beside(port, without, "--set rpcgame.lean_listen=ADDRESS")?;
        }
        let games = Games::new(games);
        host.handles.offer(games.clone());
        let shown = games.clone();
        metrics::collect(host.metrics, move |page| write(page, &shown));
        Ok(Self {
            games,
            grpc,
            lean,
            lean_limits,
            once,
            connections: host.connections.clone(),
            auth: host.auth.clone(),
        })
    }
}

impl Service for RpcGameService {
    fn grpc(&self, builder: Builder) -> Builder {
        builder
            .add_service(RpcGameServer::new(GameService::new(self.games.clone())))
            .add_service(RpcGameStreamServer::new(StreamService::new(self.games.clone())))
    }

    fn ports(&self) -> Vec<Route<SocketAddr>> {
        let ports = [(&self.grpc, "the RPC game over gRPC"), (&self.lean, "the RPC game by the lean protocol")];
        ports.into_iter().filter_map(|(listener, what)| Some((listener.as_ref()?.local_addr().ok()?, what))).collect()
    }

    fn start(&mut self, serving: &mut Serving) -> Result<(), Error> {
        let address = |listener: &Option<TcpListener>| listener.as_ref()?.local_addr().ok().map(|at| at.to_string());
        let (grpc, lean) = (address(&self.grpc), address(&self.lean));
        if grpc.is_some() || lean.is_some() {
            tracing::info!(grpc, lean, "the RPC game has ports of its own");
        }
        let games = self.games.clone();
        serving.run_until_stopped(async move { games.keep_expiring().await });
        if let Some(listener) = self.lean.take() {
            let drain = serving.limits.drain_timeout;
            let address = listener.local_addr()?;
            let tls = serving.tls.clone().filter(|_| !address.ip().is_loopback());
            let server = lean::Server::new(self.games.clone(), self.lean_limits.clone(), drain)
                .guarded(self.auth.authenticator(Some(Scope::Play), address), tls)
                .charged_to(serving.limits.memory.clone())
                .listed_in(serving.connections.clone());
            let (workers, stopped) = (serving.workers.clone(), serving.stopped());
            serving.tasks.spawn(async move {
                server.serve(listener, workers, stopped).await;
                Ok(())
            });
        }
        if let Some(listener) = self.grpc.take() {
            self.serve_grpc(listener, serving);
        }
        Ok(())
    }

    fn over(&self) -> Pending<'static, &'static str> {
        let (mut ended, once) = (self.games.ended(), self.once);
        Box::pin(async move {
            if once && ended.wait_for(|ended| *ended > 0).await.is_ok() {
                return "the game is over";
            }
            future::pending().await
        })
    }
}

impl RpcGameService {
    /// Serves the game alone, with health and reflection, on its own port for gRPC.
    fn serve_grpc(&self, listener: TcpListener, serving: &mut Serving) {
        let (health, health_service) = HealthReporter::new();
        // The listener was bound to an address.
        let Ok(address) = listener.local_addr() else { return };
        let builder = self.grpc(Server::builder());
        for service in builder.services() {
            health.set_serving(service, true);
        }
        let mut limits = serving.limits.clone();
        limits.connections_max = self.connections.granted_live(PORT_CONNECTIONS, &limits.connections_max);
        limits.http2.concurrent_streams_max = CALLS_PER_CONNECTION;
        limits.http2.stream_window_bytes = STREAM_WINDOW_BYTES;
        limits.http2.connection_window_bytes = CONNECTION_WINDOW_BYTES;
        let builder = builder.add_service(health_service).reflection();
        let observer = (serving.observer)(&builder);
        let builder =
            (serving.guard)(builder, address).limits(limits).observer(observer).workers(serving.workers.clone());
        let server = match serving.tls.clone() {
            None => builder,
            Some(tls) => builder.tls(tls),
        }
        .build();
        let stopped = serving.stopped();
        serving.tasks.spawn(async move {
            let stopping = async {
                stopped.await;
                health.shutdown();
            };
            Ok(server.serve(listener, stopping).await?)
        });
    }
}
