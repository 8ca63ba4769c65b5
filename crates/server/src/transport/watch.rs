//! What the engine reports: counted for the metrics, and logged where somebody may ask why.

use std::net::SocketAddr;

use bookstore::{Bookstore, fault::Limit};
use grpc::server::{CallReport, Observer, Refusal};

use super::counts::Counts;

/// The engine's witness.
pub(crate) struct Observed {
    pub(super) counts: Counts,
    pub(super) store: Bookstore,
}

impl Observed {
    /// The limit by the name that the configuration has for it; none for the engine's own.
    fn limit(refusal: Refusal) -> Option<Limit> {
        match refusal {
            Refusal::Connections => Some(Limit::Connections),
            Refusal::Calls => Some(Limit::CallsInFlight),
            Refusal::MessageBytes => Some(Limit::MessageBytes),
            // Bounds of the engine's own, which no one sets.
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
        if let Some(limit) = Self::limit(refusal) {
            self.store.metrics().refused(limit);
        } else {
            tracing::warn!(limit = ?refusal, "a limit of the engine was reached");
        }
    }
}
