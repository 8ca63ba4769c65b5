//! Engine events: counted for metrics, and logged if useful to operators.

use std::{net::SocketAddr, sync::Arc};

use hosting::{Client, Warnings, metrics::Refusals};
use quire_rpc::{
    Code,
    server::{CallReport, Observer, Refusal},
};

use super::counts::MethodCounts;
use crate::telemetry::CallLog;

/// Observes one server.
pub(super) struct Watch {
    pub(super) counts: MethodCounts,
    pub(super) refusals: Refusals,
    pub(super) warnings: Warnings,
    /// Set if calls are logged.
    pub(super) calls: Option<Arc<CallLog>>,
}

impl Observer for Watch {
    fn connection_opened(&self, peer: Option<SocketAddr>) {
        tracing::trace!(peer = peer.map(tracing::field::display), "a connection was opened");
    }

    fn connection_closed(&self, peer: Option<SocketAddr>, reason: &str) {
        let peer = peer.map(tracing::field::display);
        // A peer that closes without TLS's `close_notify` has closed: HTTP marks where messages end.
        let is_usual = ["closed", "closed by the peer", "drained"].contains(&reason);
        if is_usual || reason.contains("close_notify") {
            tracing::debug!(peer, reason, "a connection was closed");
        } else if reason.starts_with("cut: ") {
            tracing::warn!(peer, reason, "a connection was closed");
        } else {
            tracing::info!(peer, reason, "a connection was closed");
        }
    }

    fn wants_details(&self) -> bool {
        self.calls.is_some()
    }

    fn call_finished(&self, call: &CallReport<'_>) {
        self.counts.ended(call.method, call.code, call.elapsed);
        if let (Some(log), Some(details)) = (&self.calls, &call.details) {
            log.ended(call, details);
        }
    }

    /// Counted but not logged: a client could flood the log.
    fn refused(&self, limit: Refusal) {
        self.refusals.count(limit.name());
    }

    fn refused_client(&self, limit: Refusal, client: &Client) {
        self.refused(limit);
        self.warnings.refused(limit.name(), client);
    }

    fn call_refused(&self, client: &Client, code: Code, reason: &str) {
        self.warnings.call_refused(code, client, reason);
    }

    fn made_room(&self, limit: Refusal, client: &Client) {
        self.warnings.made_room(limit.name(), client);
    }
}
