//! What the engine reports: counted for the metrics, and logged where somebody may ask why.

use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bookstore::{
    Bookstore,
    fault::{Fault, Limit},
};
use grpc::{
    Code, Server,
    server::{CallReport, Observer, Refusal},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
};

use crate::config::TransportLimits;

/// The methods that are counted by name; what else callers make up is counted as `other`.
const METHODS: [&str; 13] = [
    "/bookstore.BookStore/Lookup",
    "/bookstore.BookStore/Buy",
    "/bookstore.BookStore/Search",
    "/bookstore.BookStore/Hello",
    "/bookstore.Admin/List",
    "/bookstore.Admin/Restock",
    "/bookstore.Admin/UpdatePrice",
    "/bookstore.Admin/Log",
    "/bookstore.Admin/TailLog",
    "/RPCGame/Try",
    "/RPCGame/Done",
    "/RPCGameStream/Play",
    "other",
];

/// gRPC's status codes run from 0 to 16.
const CODES: usize = 17;

/// Calls by method and status, and what the server has open; clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    calls: Arc<[[AtomicU64; CODES]; METHODS.len()]>,
    server: Arc<OnceLock<Server>>,
}

impl Counts {
    pub(super) fn observer(&self, store: Bookstore, limits: TransportLimits) -> Arc<Observed> {
        Arc::new(Observed { counts: self.clone(), store, limits })
    }

    /// From now on `server` is asked for what is open.
    pub(super) fn levels_of(&self, server: &Server) {
        // There is one server in a process.
        let _ = self.server.set(server.clone());
    }

    pub(crate) fn connections(&self) -> usize {
        self.server.get().map_or(0, Server::connections)
    }

    pub(crate) fn calls_in_flight(&self) -> usize {
        self.server.get().map_or(0, Server::calls)
    }
}

impl Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "gRPC calls that ended, by method and status";
        let mut metric = encoder.encode_descriptor("grpc_calls", help, None, MetricType::Counter)?;
        for (method, codes) in METHODS.iter().zip(&*self.calls) {
            for (code, count) in codes.iter().enumerate().map(|(code, count)| (code, count.load(Relaxed))) {
                if count > 0 {
                    let code = Code::from_number(u32::try_from(code).unwrap_or_default());
                    let labels = [("method", (*method).to_owned()), ("code", format!("{code:?}"))];
                    ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

/// The engine's witness.
pub(crate) struct Observed {
    counts: Counts,
    store: Bookstore,
    limits: TransportLimits,
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
        let other = METHODS.len() - 1;
        let method = METHODS.iter().position(|method| *method == call.path).unwrap_or(other);
        let code = usize::try_from(call.code as u32).unwrap_or(0);
        self.counts.calls[method][code.min(CODES - 1)].fetch_add(1, Relaxed);
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
