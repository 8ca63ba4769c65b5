//! What all connections of a server share.
//!
//! Must not know what a connection does with it.
//!
//! Implements: no specification.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use quire_http2::Head;
#[cfg(feature = "tls")]
use tokio_rustls::TlsAcceptor;

use super::cors::Cors;
use super::http_calls::HttpService;
use super::limits::Limits;
use super::observer::Observer;
use super::plan::{CallPlan, Routes};
use super::reply::ReplyState;
use crate::compression::Encoding;
use crate::protocol::Dialect;

/// What all connections of a server share.
pub(super) struct Shared {
    pub(super) routes: Routes,
    pub(super) limits: Arc<Limits>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) http: Option<Arc<dyn HttpService>>,
    pub(super) compression: Option<(Encoding, usize)>,
    pub(super) cors: Cors,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) connections: AtomicUsize,
    pub(super) refusals: AtomicUsize,
    /// Calls that wait for something, over all connections.
    pub(super) calls: AtomicUsize,
}

impl Shared {
    /// An answer that has no messages.
    pub(super) fn bare(&self, dialect: Dialect, head: &Head) -> ReplyState {
        ReplyState::bare(dialect).for_origin(self.cors.allowed(head))
    }

    /// How the answer to a call is compressed, and from how many bytes on.
    pub(super) fn compression_for(&self, plan: CallPlan) -> Option<(Encoding, usize)> {
        let (encoding, bytes_min) = self.compression?;
        plan.terms.accepted.has(encoding).then_some((encoding, bytes_min))
    }
}
