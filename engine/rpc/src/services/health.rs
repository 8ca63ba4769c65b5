//! The health service (gRPC's "Health Checking Protocol"): the serving status of a server and its services.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::Stream;
use tokio::sync::watch;

pub use super::proto::health::health_check_response::ServingStatus;
#[cfg(feature = "client")]
pub use super::proto::health::health_client::HealthClient;
use super::proto::health::health_server::{Health, HealthServer};
pub use super::proto::health::{HealthCheckRequest, HealthCheckResponse};
use crate::envelope::{Request, Response};
use crate::status::Status;
use crate::unfold::unfold;

/// Limit of watched services that are not registered: clients choose those names.
const UNREGISTERED_MAX: usize = 1_000;

type Statuses = HashMap<String, watch::Sender<ServingStatus>>;

/// Sets the serving status of services; clones share the server's state.
#[derive(Clone, Debug, Default)]
pub struct HealthReporter {
    statuses: Arc<Mutex<Statuses>>,
}

impl HealthReporter {
    /// Creates a reporter with the server as a whole serving, and the service to add to the server.
    pub fn new() -> (Self, HealthServer<HealthService>) {
        let reporter = Self::default();
        reporter.set_serving("", true);
        (reporter.clone(), HealthServer::new(HealthService { reporter }))
    }

    fn lock(&self) -> MutexGuard<'_, Statuses> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the status of `service` (empty: the server).
    pub fn set_serving(&self, service: &str, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.lock().entry(service.to_owned()).or_insert_with(|| watch::Sender::new(status)).send_replace(status);
    }

    /// Reports everything as not serving, and ends every watch, so that a drain does not wait for them.
    pub fn shutdown(&self) {
        for (_, sender) in self.lock().drain() {
            sender.send_replace(ServingStatus::NotServing);
        }
    }

    fn watch(&self, service: &str) -> Result<watch::Receiver<ServingStatus>, Status> {
        let mut statuses = self.lock();
        if !statuses.contains_key(service) {
            statuses
                .retain(|_, sender| sender.receiver_count() > 0 || *sender.borrow() != ServingStatus::ServiceUnknown);
            let unregistered = statuses.values().filter(|s| *s.borrow() == ServingStatus::ServiceUnknown).count();
            if unregistered >= UNREGISTERED_MAX {
                return Err(Status::resource_exhausted("too many watches of services that do not exist"));
            }
        }
        let sender =
            statuses.entry(service.to_owned()).or_insert_with(|| watch::Sender::new(ServingStatus::ServiceUnknown));
        Ok(sender.subscribe())
    }
}

/// The service behind a [`HealthReporter`].
#[derive(Debug)]
pub struct HealthService {
    reporter: HealthReporter,
}

fn reply(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

impl Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match self.reporter.lock().get(&service).map(|sender| *sender.borrow()) {
            None | Some(ServingStatus::ServiceUnknown) => Err(Status::not_found("no such service is registered")),
            Some(status) => Ok(Response::new(reply(status))),
        }
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let mut receiver = self.reporter.watch(&request.get_ref().service)?;
        receiver.mark_changed();
        let stream = unfold(receiver, |mut receiver| async move {
            receiver.changed().await.ok()?;
            let status = *receiver.borrow_and_update();
            Some((Ok(reply(status)), receiver))
        });
        Ok(Response::new(Box::pin(stream)))
    }
}
