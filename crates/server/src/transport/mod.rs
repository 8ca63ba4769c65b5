//! The sockets and the gRPC engine (tonic) behind one function. Must not hold a rule or a limit of its own: it
//! asks [`crate::admission`] who may come in and hands calls to the services it was given.

mod calls;
mod deadline;
mod io;
mod refusal;

use std::{sync::Arc, time::Duration};

use bookstore::{
    Bookstore,
    fault::Limit,
    grpc::{Access, AdminService, ShopService, wire},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{codec::CompressionEncoding::Gzip, service::Routes, transport::Server};
use wire::{admin_server::AdminServer, book_store_server::BookStoreServer};

pub(crate) use self::calls::CallMetrics;
use self::io::Connection;
use crate::{admission::Gate, config::TransportLimits};

/// What is served, and to how many.
pub(crate) struct Front {
    pub store: Bookstore,
    pub access: Access,
    pub limits: TransportLimits,
    pub connections: Gate,
    pub calls: Gate,
    pub metrics: CallMetrics,
    /// Answers HTTP/1.1, and HTTP/2 that is not gRPC.
    pub pages: axum::Router,
}

/// Connections told that there are too many at once; more than this are closed without a word.
const REFUSED_AT_ONCE: usize = 64;

/// Accepted connections that wait for the engine.
const ACCEPTED_MAX: usize = 64;

/// Serves until `stop` turns true and every call in flight has been answered.
pub(crate) async fn serve(listener: TcpListener, front: Front, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
    let (health, health_service) = tonic_health::server::health_reporter();
    let watching = tokio::spawn(report_health(health, front.store.sound(), stop.clone()));
    let descriptors = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let most = front.limits.message_bytes;
    let shoppers = BookStoreServer::new(ShopService::new(front.store.clone()));
    let operators = AdminServer::new(AdminService::new(front.store.clone(), front.access));
    let routes = Routes::from(front.pages)
        .add_service(shoppers.max_decoding_message_size(most).accept_compressed(Gzip).send_compressed(Gzip))
        .add_service(operators.max_decoding_message_size(most).accept_compressed(Gzip).send_compressed(Gzip))
        .add_service(health_service)
        .add_service(descriptors().build_v1()?)
        .add_service(descriptors().build_v1alpha()?);
    let layer = calls::AdmissionLayer::new(front.calls, front.metrics, front.store.clone(), most);
    let (accepted, connections) = mpsc::channel(ACCEPTED_MAX);
    let doorman = Doorman { gate: front.connections, store: front.store, first_byte: front.limits.first_byte };
    let accepting = tokio::spawn(doorman.accept(listener, accepted, stop.clone()));
    let served = Server::builder()
        .accept_http1(true)
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(Duration::from_mins(1)))
        .layer(layer)
        .add_routes(routes)
        .serve_with_incoming_shutdown(ReceiverStream::new(connections), stopped(stop))
        .await;
    accepting.abort();
    watching.abort();
    Ok(served?)
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // The sender outlives the server; were it gone, stopping would be right as well.
    drop(stop.wait_for(|stop| *stop).await);
}

/// Listens, and lets in as many as the gate has places.
struct Doorman {
    gate: Gate,
    store: Bookstore,
    first_byte: Duration,
}

impl Doorman {
    async fn accept(
        self,
        listener: TcpListener,
        accepted: mpsc::Sender<std::io::Result<Connection>>,
        stop: watch::Receiver<bool>,
    ) {
        let refused = Arc::new(tokio::sync::Semaphore::new(REFUSED_AT_ONCE));
        let mut stop = std::pin::pin!(stopped(stop));
        loop {
            let taken = tokio::select! {
                taken = listener.accept() => taken,
                () = &mut stop => return,
            };
            let (stream, peer) = match taken {
                Ok(taken) => taken,
                Err(error) => {
                    // Out of file descriptors, or a peer that left at once; either passes.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            match self.gate.enter() {
                Ok(pass) => {
                    set_nodelay(&stream);
                    let connection = Connection::new(stream, peer, pass, self.first_byte);
                    if accepted.send(Ok(connection)).await.is_err() {
                        return;
                    }
                }
                Err(fault) => {
                    self.store.metrics().refused(Limit::Connections);
                    if let Ok(turn) = Arc::clone(&refused).try_acquire_owned() {
                        drop(tokio::spawn(refusal::tell(stream, fault, turn)));
                    } else {
                        tracing::warn!(%peer, "closed a connection: {fault}");
                    }
                }
            }
        }
    }
}

fn set_nodelay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
}

/// Tells health watchers how the store is, until the server stops.
async fn report_health(
    health: tonic_health::server::HealthReporter,
    mut sound: watch::Receiver<bool>,
    stop: watch::Receiver<bool>,
) {
    use tonic_health::ServingStatus::{NotServing, Serving};
    const NAMES: [&str; 3] = ["", "bookstore.BookStore", "bookstore.Admin"];
    let mut stop = std::pin::pin!(stopped(stop));
    loop {
        let status = if *sound.borrow_and_update() { Serving } else { NotServing };
        for name in NAMES {
            health.set_service_status(name, status).await;
        }
        let changed = tokio::select! {
            changed = sound.changed() => changed,
            () = &mut stop => break,
        };
        if changed.is_err() {
            break;
        }
    }
    // Ends the watchers' streams, so that the drain does not wait for them.
    for name in NAMES {
        health.set_service_status(name, NotServing).await;
    }
    let mut health = health;
    for name in NAMES {
        health.clear_service_status(name).await;
    }
}
