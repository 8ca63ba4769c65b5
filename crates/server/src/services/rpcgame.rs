//! The RPC game: on the main port, on one of its own, and by the lean protocol on a third. Must not hold a rule.

use std::sync::Arc;

use grpc::{
    Limits, Server,
    health::{self, HealthReporter},
    reflection::Reflection,
    rustls::ServerConfig,
    server::Builder,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use rpcgame::{
    Games,
    grpc::{GameService, StreamService, wire},
    lean,
};
use tokio::{net::TcpListener, runtime::Handle, sync::watch::Receiver, task::JoinSet};
use wire::{rpc_game_server::RpcGameServer, rpc_game_stream_server::RpcGameStreamServer};

use crate::{
    config::{self, Port},
    index::Elsewhere,
    serve,
    transport::{Observed, stopped},
};

/// Calls at once on a connection to the game's own port, where windows are wide.
const CALLS_PER_CONNECTION: u32 = 4096;
/// A stream's window on that port: frames of many messages are the usual traffic.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// The games, and the ports they are played on.
pub(crate) struct RpcGame {
    games: Games,
    grpc: Option<TcpListener>,
    lean: Option<(TcpListener, lean::Limits)>,
    once: bool,
}

/// What the game's own ports share with the main one.
pub(crate) struct Ports {
    pub limits: Limits,
    pub observer: Arc<Observed>,
    pub tls: Option<Arc<ServerConfig>>,
    pub workers: Vec<Handle>,
}

impl RpcGame {
    /// Takes the ports.
    pub(crate) async fn open(settings: &config::RpcGame) -> anyhow::Result<Self> {
        let listen = async |port: Option<Port>, without: &str, how: &str| match port {
            Some(port) => serve::listen_beside(port, without, how).await,
            None => Ok(None),
        };
        let without = "the RPC game is served on the main port only";
        let grpc = listen(settings.listen, without, "--set rpcgame.listen=ADDRESS").await?;
        let without = "the lean protocol of the RPC game is not served";
        let lean = listen(settings.lean_listen, without, "--set rpcgame.lean_listen=ADDRESS").await?;
        let lean = lean.map(|listener| (listener, settings.lean.clone()));
        Ok(Self { games: Games::new(settings.games.clone()), grpc, lean, once: settings.once })
    }

    /// Tells the log where the game is; addresses with port 0 have got a port by now.
    pub(crate) fn announce(&self) -> std::io::Result<()> {
        let address = |listener: &TcpListener| listener.local_addr().map(|address| address.to_string());
        let grpc = self.grpc.as_ref().map(address).transpose()?;
        let lean = self.lean.as_ref().map(|(listener, _)| address(listener)).transpose()?;
        if grpc.is_some() || lean.is_some() {
            tracing::info!(grpc, lean, "the RPC game has ports of its own");
        }
        Ok(())
    }

    /// Where the game is played beside the main port.
    pub(crate) fn ports(&self) -> Vec<Elsewhere> {
        let lean = self.lean.as_ref().map(|(listener, _)| listener);
        let ports = [(self.grpc.as_ref(), "the RPC game over gRPC"), (lean, "the RPC game by the lean protocol")];
        ports.into_iter().filter_map(|(listener, what)| Some((listener?.local_addr().ok()?, what))).collect()
    }

    /// What it tells on the metrics page.
    pub(crate) fn figures(&self) -> Figures {
        Figures(self.games.clone())
    }

    /// Counts the games that ended, if the server is to stop after the first.
    pub(crate) fn over(&self) -> Option<Receiver<u64>> {
        self.once.then(|| self.games.ended())
    }

    /// Adds the game to what a port tells of itself.
    pub(crate) fn describe(health: &HealthReporter, contracts: Reflection) -> anyhow::Result<Reflection> {
        for service in wire::SERVICES {
            health.set_serving(service, true);
        }
        Ok(contracts.descriptors(wire::DESCRIPTORS)?)
    }

    /// Adds the game to a server.
    pub(crate) fn serve_beside(&self, builder: Builder) -> Builder {
        builder
            .add_service(RpcGameServer::new(GameService::new(self.games.clone())))
            .add_service(RpcGameStreamServer::new(StreamService::new(self.games.clone())))
    }

    /// Serves the game's own ports until `stop` turns true.
    pub(crate) fn serve_apart(
        mut self,
        ports: Ports,
        stop: &Receiver<bool>,
        tasks: &mut JoinSet<anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let (games, mut until) = (self.games.clone(), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = games.keep_expiring() => {}
                _ = until.wait_for(|stop| *stop) => {}
            }
            Ok(())
        });
        if let Some((listener, limits)) = self.lean.take() {
            let server = lean::Server::new(self.games.clone(), limits, ports.limits.drain_timeout);
            let (workers, stop) = (ports.workers.clone(), stop.clone());
            tasks.spawn(async move { Ok(server.serve(listener, workers, stopped(stop)).await?) });
        }
        if let Some(listener) = self.grpc.take() {
            self.serve_grpc(listener, ports, stop.clone(), tasks)?;
        }
        Ok(())
    }

    fn serve_grpc(
        &self,
        listener: TcpListener,
        ports: Ports,
        stop: Receiver<bool>,
        tasks: &mut JoinSet<anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let (health, health_service) = HealthReporter::new();
        let contracts = Self::describe(&health, Reflection::new().descriptors(health::DESCRIPTORS)?)?;
        let (reflection, reflection_alpha) = contracts.services();
        let mut limits = ports.limits;
        limits.http2.concurrent_streams_max = CALLS_PER_CONNECTION;
        limits.http2.stream_window_bytes = STREAM_WINDOW_BYTES;
        limits.http2.connection_window_bytes = CONNECTION_WINDOW_BYTES;
        let builder = self
            .serve_beside(Server::builder())
            .add_service(health_service)
            .add_service(reflection)
            .add_service(reflection_alpha)
            .limits(limits)
            .observer(ports.observer)
            .workers(ports.workers);
        let server = match ports.tls {
            None => builder,
            Some(tls) => builder.tls(tls),
        }
        .build();
        tasks.spawn(async move {
            let stopping = async {
                stopped(stop).await;
                health.shutdown();
            };
            Ok(server.serve(listener, stopping).await?)
        });
        Ok(())
    }
}

/// The games' figures, read when they are asked for.
#[derive(Debug)]
pub(crate) struct Figures(Games);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.0.counts();
        let help = "Messages and calls of the RPC game refused over gRPC, by reason";
        let mut metric = encoder.encode_descriptor("rpcgame_refusals", help, None, MetricType::Counter)?;
        for (reason, count) in counts.refusals() {
            ConstCounter::new(count).encode(metric.encode_family(&[("reason", reason)])?)?;
        }
        let help = "Lean connections that were closed, by reason";
        let mut metric = encoder.encode_descriptor("rpcgame_lean_closed", help, None, MetricType::Counter)?;
        for (reason, count) in counts.lean_ends() {
            ConstCounter::new(count).encode(metric.encode_family(&[("reason", reason)])?)?;
        }
        let growing = [
            ("rpcgame_lean_messages", "Messages handled on lean connections", counts.lean_messages()),
            ("rpcgame_ended", "Games that ended by Done", *self.0.ended().borrow()),
        ];
        for (name, help, count) in growing {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let levels = [
            ("rpcgame_lean_connections", "Open lean connections", counts.lean_connections()),
            ("rpcgame_games", "Games over gRPC that are played now", wide(self.0.count())),
            ("rpcgame_waiting_bytes", "What messages that came early hold", wide(self.0.waiting_bytes())),
        ];
        for (name, help, level) in levels {
            let gauge = ConstGauge::new(i64::try_from(level).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
