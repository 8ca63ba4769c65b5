//! Puts the services behind the engine and the engine on its threads. Must not hold a rule: limits come from the
//! configuration, and what is counted goes to [`counts`].

mod counts;
mod threads;
pub(crate) mod tls;
mod watch;

use std::{sync::Arc, time::Duration};

use bookstore::{
    Bookstore,
    grpc::{Access, AdminService, ShopService, wire},
};
use grpc::{
    Limits, Server,
    health::{self, HealthReporter},
    reflection::Reflection,
    rustls::ServerConfig,
};
use tokio::{net::TcpListener, sync::watch::Receiver, task::JoinSet};
use wire::{admin_server::AdminServer, book_store_server::BookStoreServer};

pub(crate) use self::counts::Counts;
use self::threads::Threads;
pub(crate) use self::watch::Observed;
use crate::{
    config::TransportLimits,
    http::Site,
    index::{Elsewhere, Index},
    services::{
        kv::{self, Kv},
        records::Records,
        rpcgame::{Ports, RpcGame},
    },
};

/// What is served, and how.
pub(crate) struct Front {
    pub store: Bookstore,
    pub access: Access,
    /// `None` when the key-value service is off.
    pub kv: Option<Kv>,
    /// `None` when the record queries are off.
    pub records: Option<Records>,
    pub limits: TransportLimits,
    pub counts: Counts,
    /// Answers HTTP/1.1, and HTTP/2 that is not gRPC.
    pub site: Site,
    /// Where else something is served.
    pub ports: Vec<Elsewhere>,
    /// Set when only TLS is spoken.
    pub tls: Option<Arc<ServerConfig>>,
    /// Threads that serve connections.
    pub threads: usize,
    /// How long calls may go on once the server stops.
    pub drain: Duration,
    /// Set when the RPC game is served.
    pub game: Option<RpcGame>,
}

/// Serves until `stop` turns true and every call in flight has been answered or cut off.
pub(crate) async fn serve(listener: TcpListener, front: Front, stop: Receiver<bool>) -> anyhow::Result<()> {
    let (reporter, health_service) = HealthReporter::new();
    let mut contracts = Reflection::new().descriptors(wire::DESCRIPTORS)?.descriptors(health::DESCRIPTORS)?;
    if front.kv.is_some() {
        contracts = Kv::describe(contracts)?;
    }
    if let Some(records) = &front.records {
        contracts = records.describe(&reporter, contracts)?;
    }
    if front.game.is_some() {
        contracts = RpcGame::describe(&reporter, contracts)?;
    }
    let watching =
        tokio::spawn(report_health(reporter, front.store.sound(), front.kv.as_ref().map(Kv::sound), stop.clone()));
    let (reflection, reflection_alpha) = contracts.services();
    let threads = Threads::start(front.threads)?;
    let limits = limits(&front.limits, front.drain);
    let observer = Arc::new(Observed { counts: front.counts.clone(), store: front.store.clone() });
    let builder = Server::builder();
    let builder = match &front.kv {
        Some(kv) => kv.serve_on(builder, front.access.clone()),
        None => builder,
    };
    let builder = match &front.records {
        Some(records) => records.serve_on(builder),
        None => builder,
    };
    let builder = builder
        .add_service(BookStoreServer::new(ShopService::new(front.store.clone())))
        .add_service(AdminServer::new(AdminService::new(front.store.clone(), front.access)))
        .add_service(health_service)
        .add_service(reflection)
        .add_service(reflection_alpha)
        .limits(limits.clone())
        .observer(observer.clone())
        .workers(threads.handles());
    let mut playing = JoinSet::new();
    let builder = match front.game {
        None => builder,
        Some(game) => {
            let builder = game.serve_beside(builder);
            let here = Ports { limits, observer, tls: front.tls.clone(), workers: threads.handles() };
            game.serve_apart(here, &stop, &mut playing)?;
            builder
        }
    };
    let methods: Vec<&str> = builder.paths().collect();
    let index = Index { pages: &front.site.pages, methods: &methods, ports: &front.ports };
    let pages = index.add_to(front.site.router);
    let builder = builder.http(pages);
    let server = match front.tls {
        None => builder,
        Some(tls) => builder.tls(tls),
    }
    .build();
    front.counts.levels_of(&server);
    let served = server.serve(listener, stopped(stop)).await;
    while let Some(ended) = playing.join_next().await {
        ended??;
    }
    watching.abort();
    threads.stop();
    served?;
    Ok(())
}

fn limits(configured: &TransportLimits, drain: Duration) -> Limits {
    Limits {
        connections_max: configured.connections,
        calls_max: configured.calls_in_flight,
        message_bytes_max: configured.message_bytes,
        handshake_timeout: configured.first_byte,
        drain_timeout: drain,
        ..Limits::default()
    }
}

pub(crate) async fn stopped(mut stop: Receiver<bool>) {
    // The sender outlives the server; were it gone, stopping would be right as well.
    drop(stop.wait_for(|stop| *stop).await);
}

/// Tells health watchers how the store is, until the server stops.
async fn report_health(
    health: HealthReporter,
    mut sound: Receiver<bool>,
    mut kv_sound: Option<Receiver<bool>>,
    stop: Receiver<bool>,
) {
    const NAMES: [&str; 3] = ["", "bookstore.BookStore", "bookstore.Admin"];
    let mut stop = std::pin::pin!(stopped(stop));
    loop {
        let serving = *sound.borrow_and_update();
        for name in NAMES {
            health.set_serving(name, serving);
        }
        if let Some(sound) = &mut kv_sound {
            let serving = *sound.borrow_and_update();
            for name in kv::NAMES {
                health.set_serving(name, serving);
            }
        }
        let kv_changed = async {
            match &mut kv_sound {
                Some(sound) => sound.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = sound.changed() => if changed.is_err() { break },
            changed = kv_changed => if changed.is_err() { break },
            () = &mut stop => break,
        }
    }
    health.shutdown();
}
