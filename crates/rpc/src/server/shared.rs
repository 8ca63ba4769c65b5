//! What all connections of a server share.
//!
//! Must not know what a connection does with it.
//!
//! Implements: no specification.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use http::Extensions;
use quire_http2::Head;
use tokio::time::Instant;
#[cfg(feature = "tls")]
use tokio_rustls::TlsAcceptor;

use super::cors::Cors;
use super::held::Apart;
use super::hosts::Hosts;
use super::limits::Limits;
use super::observer::Observer;
use super::places::Places;
use super::plan::{CallPlan, Routes};
use super::reply::ReplyState;
use crate::compression::{Accepted, Encoding};
use crate::envelope::{Peer, Request};
use crate::http_service::HttpService;
use crate::interceptor::Interceptor;
use crate::metadata::Metadata;
use crate::protocol::Dialect;
use crate::status::Status;

/// What all connections of a server share.
pub(super) struct Shared {
    pub(super) routes: Routes,
    pub(super) limits: Arc<Limits>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) http: Option<Arc<dyn HttpService>>,
    /// What calls go through before they begin, if there are layers.
    pub(super) layered: Option<Arc<dyn HttpService>>,
    pub(super) compression: Option<(Encoding, usize)>,
    pub(super) cors: Cors,
    pub(super) interceptors: Vec<Arc<dyn Interceptor>>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) places: Places,
    pub(super) hosts: Hosts,
    /// Paths that are answered on a connection too many, as health is.
    pub(super) always: Vec<String>,
    /// Calls that wait for something, over all connections. Every thread writes it, and reads what lies around it.
    pub(super) calls: Apart<AtomicUsize>,
}

impl Shared {
    /// Whether this path is answered even on a connection too many.
    pub(super) fn is_always_answered(&self, path: &[u8]) -> bool {
        self.always.iter().any(|always| always.as_bytes() == path)
    }

    /// An answer that has no messages.
    pub(super) fn bare(&self, dialect: Dialect, head: &Head) -> ReplyState {
        ReplyState::bare(dialect).for_origin(self.cors.allowed(head))
    }

    /// A request without its message, as the interceptors let it pass.
    #[inline]
    pub(super) fn envelope(
        &self,
        plan: CallPlan,
        head: &Arc<Head>,
        deadline: Option<Instant>,
        peer: &Arc<Peer>,
    ) -> Result<Request<()>, Status> {
        let request = Self::bare_request(plan, head, deadline, peer);
        if self.interceptors.is_empty() { Ok(request) } else { self.intercepted(plan, request) }
    }

    /// As [`Shared::envelope`], of a request that has extensions.
    pub(super) fn envelope_with(
        &self,
        extensions: Extensions,
        plan: CallPlan,
        head: &Arc<Head>,
        deadline: Option<Instant>,
        peer: &Arc<Peer>,
    ) -> Result<Request<()>, Status> {
        let mut request = Self::bare_request(plan, head, deadline, peer);
        *request.extensions_mut() = extensions;
        self.intercepted(plan, request)
    }

    #[inline]
    fn bare_request(plan: CallPlan, head: &Arc<Head>, deadline: Option<Instant>, peer: &Arc<Peer>) -> Request<()> {
        // Only plain gRPC passes answers on that are compressed already.
        let accepted = if plan.dialect.is_plain { plan.terms.accepted } else { Accepted::default() };
        let metadata = Metadata::received(Arc::clone(head));
        Request::received((), metadata, deadline, Arc::clone(peer)).accepting(accepted)
    }

    /// Apart from the requests that no one intercepts, so that these are made where they are used.
    #[inline(never)]
    fn intercepted(&self, plan: CallPlan, mut request: Request<()>) -> Result<Request<()>, Status> {
        let path = &self.routes.table[plan.method].path;
        let asked = catch_unwind(AssertUnwindSafe(|| {
            self.interceptors.iter().try_for_each(|interceptor| interceptor.intercept(path, &mut request))
        }));
        asked.unwrap_or_else(|_| Err(Status::internal("an interceptor panicked"))).map(|()| request)
    }

    /// How the answer to a call is compressed, and from how many bytes on.
    pub(super) fn compression_for(&self, plan: CallPlan) -> Option<(Encoding, usize)> {
        let (encoding, bytes_min) = self.compression?;
        plan.terms.accepted.has(encoding).then_some((encoding, bytes_min))
    }
}
