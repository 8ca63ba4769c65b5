//! Engine events: counted for metrics, and logged if useful to operators.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hosting::{Client, metrics::Refusals};
use quire_rpc::server::{CallReport, Observer, Refusal};

use super::counts::MethodCounts;

/// Least time between two log lines about the same limit.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// The logged limits of all servers, each with its last time and the refusals omitted since.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings(Arc<Mutex<HashMap<Refusal, (Instant, u64)>>>);

impl Warnings {
    /// Number of refusals for this limit omitted from the log, if another line is due.
    fn due(&self, limit: Refusal) -> Option<u64> {
        let (mut warned, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        match warned.get_mut(&limit) {
            Some((at, left_out)) if now.duration_since(*at) < WARNING_INTERVAL => {
                *left_out += 1;
                None
            }
            _ => Some(warned.insert(limit, (now, 0)).map_or(0, |(_, left_out)| left_out)),
        }
    }
}

/// Observes one server.
pub(super) struct Watch {
    pub(super) counts: MethodCounts,
    pub(super) refusals: Refusals,
    pub(super) warnings: Warnings,
}

impl Observer for Watch {
    fn connection_opened(&self, peer: Option<SocketAddr>) {
        tracing::trace!(peer = peer.map(tracing::field::display), "a connection was opened");
    }

    fn connection_closed(&self, peer: Option<SocketAddr>, reason: &str) {
        let peer = peer.map(tracing::field::display);
        if ["closed", "closed by the peer", "drained"].contains(&reason) {
            tracing::debug!(peer, reason, "a connection was closed");
        } else {
            tracing::info!(peer, reason, "a connection was closed");
        }
    }

    fn call_finished(&self, call: &CallReport<'_>) {
        self.counts.ended(call.method, call.code, call.elapsed);
    }

    /// Counted but not logged: a client could flood the log.
    fn refused(&self, limit: Refusal) {
        self.refusals.count(limit.name());
    }

    fn refused_client(&self, limit: Refusal, client: &Client) {
        self.refused(limit);
        if let Some(left_out) = self.warnings.due(limit) {
            let limit = format_args!("limits.{}", limit.name());
            tracing::warn!(%client, %limit, left_out, "a client is refused: it has its share of a limit, or all is taken");
        }
    }
}
