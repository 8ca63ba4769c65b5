//! State shared by all connections of a server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use quire_http2::Head;
#[cfg(feature = "tls")]
use tokio_rustls::TlsAcceptor;

use super::cors::Cors;
use super::hosts::Hosts;
use super::limits::Limits;
use super::observer::{Observer, Refusal};
use super::origin::Origin;
use super::places::Places;
use super::plan::{CallPlan, Route, Routes};
use super::reply::ReplyState;
use super::shares::{CallPlaces, Caller, Shares};
use crate::compression::Encoding;
use crate::envelope::Request;
use crate::http_service::HttpService;
use crate::interceptor::{Ending, Until};
use crate::protocol::Dialect;
use crate::status::Status;

/// State shared by all connections of a server.
pub(super) struct Shared {
    pub(super) routes: Routes,
    pub(super) limits: Arc<Limits>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) http: Option<Arc<dyn HttpService>>,
    /// The layers around calls, if any.
    pub(super) layered: Option<Arc<dyn HttpService>>,
    pub(super) compression: Option<(Encoding, usize)>,
    pub(super) cors: Cors,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) places: Places,
    pub(super) hosts: Hosts,
    /// Paths answered even on excess connections, such as health.
    pub(super) always: Vec<String>,
    /// Paths of calls that free memory.
    pub(super) freeing: Vec<String>,
    /// Permits of waiting calls, over all connections.
    pub(super) calls: Shares,
}

impl Shared {
    /// True for paths answered even on excess connections.
    pub(super) fn is_always_answered(&self, path: &[u8]) -> bool {
        self.always.iter().any(|always| always.as_bytes() == path)
    }

    /// True for paths answered even while memory is full.
    pub(super) fn is_answered_when_full(&self, path: &[u8]) -> bool {
        self.is_always_answered(path) || self.freeing.iter().any(|freeing| freeing.as_bytes() == path)
    }

    /// State of an answer without messages.
    pub(super) fn bare(&self, dialect: Dialect, head: &Head) -> ReplyState {
        ReplyState::new(dialect, None, None, self.cors.allowed(head))
    }

    /// The request without its message, after the interceptors; `None` if there are none.
    #[inline]
    pub(super) fn intercepted(&self, plan: &CallPlan, origin: &Origin<'_>) -> Result<Option<Box<Request<()>>>, Status> {
        if self.routes.table[plan.method].interceptors.is_empty() {
            return Ok(None);
        }
        self.intercept(plan, origin.request(())).map(|request| Some(Box::new(request)))
    }

    pub(super) fn intercept(&self, plan: &CallPlan, mut request: Request<()>) -> Result<Request<()>, Status> {
        let Route { path, interceptors, .. } = &self.routes.table[plan.method];
        let asked = catch_unwind(AssertUnwindSafe(|| {
            interceptors.iter().try_for_each(|interceptor| interceptor.intercept(path, &mut request))
        }));
        asked.unwrap_or_else(|_| Err(Status::internal("an interceptor panicked"))).map(|()| request)
    }

    /// Limit that refuses the caller another call of the method, if any.
    #[inline]
    pub(super) fn calls_limit(&self, caller: &mut Caller, method: Option<usize>) -> Option<Refusal> {
        let own = method.and_then(|method| self.routes.table[method].places.as_ref());
        let limit = match caller.has_room(&self.calls, own.map(|(_, places)| places)) {
            [true, true] => return None,
            [false, _] => Refusal::Calls,
            [true, false] => own.map_or(Refusal::Calls, |(limit, _)| *limit),
        };
        self.observer.refused_client(limit, caller.client());
        Some(limit)
    }

    /// Takes the permits of a waiting call.
    pub(super) fn call_places(&self, caller: &mut Caller, method: Option<usize>) -> CallPlaces {
        let own = method.and_then(|method| self.routes.table[method].places.as_ref());
        caller.take(&self.calls, own.map(|(_, places)| places))
    }

    /// The future that ends a streaming call from outside, if an interceptor wants one.
    #[inline]
    pub(super) fn ending(&self, plan: &CallPlan, request: Option<&Request<()>>) -> Option<Ending> {
        let request = request.filter(|_| self.routes.table[plan.method].streams())?;
        request.extensions().get::<Until>().map(Until::begin)
    }

    /// The answer's encoding, and the least size to compress.
    pub(super) fn compression_for(&self, plan: &CallPlan) -> Option<(Encoding, usize)> {
        let (encoding, bytes_min) = self.compression?;
        plan.terms.accepted.has(encoding).then_some((encoding, bytes_min))
    }
}
