//! What the engine reports: counted for the metrics, and logged where somebody may ask why.

use std::net::SocketAddr;

use bookstore::{
    Bookstore,
    fault::{Fault, Limit},
};
use grpc::server::{CallReport, Observer, Refusal};

use super::counts::Counts;
use crate::config::TransportLimits;

/// The engine's witness.
pub(crate) struct Observed {
    pub(super) counts: Counts,
    pub(super) store: Bookstore,
    pub(super) limits: TransportLimits,
}

impl Observed {
    /// The limit by the name and the value that the configuration has for it; none for the engine's own.
    fn limit(&self, refusal: Refusal) -> Option<(Limit, usize)> {
        match refusal {
            Refusal::Connections => Some((Limit::Connections, self.limits.connections)),
            Refusal::Calls => Some((Limit::CallsInFlight, self.limits.calls_in_flight)),
            Refusal::MessageBytes => Some((Limit::MessageBytes, self.limits.message_bytes)),
            // Bounds of the engine's own, which nobody sets.
            _ => None,
        }
    }
}

impl Observer for Observed {
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
        self.counts.ended(call.path, call.code, call.elapsed);
    }

    fn refused(&self, refusal: Refusal) {
        if let Some((limit, _)) = self.limit(refusal) {
            self.store.metrics().refused(limit);
        } else {
            tracing::warn!(limit = ?refusal, "a limit of the engine was reached");
        }
    }

    fn words(&self, refusal: Refusal) -> Option<String> {
        let (limit, at) = self.limit(refusal)?;
        Some(Fault::Limit { limit, at: u64::try_from(at).unwrap_or(u64::MAX) }.to_string())
    }
}
