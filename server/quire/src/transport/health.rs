//! Health checks over gRPC: each service's health under the names of its gRPC services.

use hosting::Service;
use quire_rpc::health::HealthReporter;
use tokio::{sync::watch, task::JoinSet};

/// The method of health checks.
pub(super) const CHECK: &str = "/grpc.health.v1.Health/Check";
pub(super) const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// The name of the server as a whole.
const SERVER: &str = "";

/// Watches the services and reports their health, until it is dropped.
pub(super) struct Health {
    reporter: HealthReporter,
    watches: JoinSet<()>,
}

impl Health {
    pub(super) fn new(reporter: HealthReporter) -> Self {
        Self { reporter, watches: JoinSet::new() }
    }

    /// Reports the health of a service that has the gRPC services `names`; none serves while memory is `short`.
    pub(super) fn watch(&mut self, service: &dyn Service, short: watch::Receiver<bool>, names: &[String]) {
        let mut names = names.to_vec();
        if service.is_essential() {
            names.push(SERVER.to_owned());
        }
        self.watches.spawn(report(self.reporter.clone(), names, service.healthy(), short));
    }

    /// Reports a last time that nothing serves, and ends every client's watch.
    pub(super) async fn stop(mut self) {
        self.watches.shutdown().await;
        self.reporter.shutdown();
    }
}

async fn report(
    reporter: HealthReporter,
    names: Vec<String>,
    mut healthy: watch::Receiver<bool>,
    mut short: watch::Receiver<bool>,
) {
    loop {
        let is_healthy = *healthy.borrow_and_update() && !*short.borrow_and_update();
        for name in &names {
            reporter.set_serving(name, is_healthy);
        }
        tokio::select! {
            Ok(()) = healthy.changed() => {}
            Ok(()) = short.changed() => {}
            else => return,
        }
    }
}
