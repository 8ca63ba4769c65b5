//! What all connections of a server share.
//!
//! Must not know what a connection does with it.
//!
//! Implements: no specification.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio_rustls::TlsAcceptor;

use super::http_calls::HttpService;
use super::limits::Limits;
use super::observer::Observer;
use super::plan::Routes;
use crate::compression::Encoding;

/// What all connections of a server share.
pub(super) struct Shared {
    pub(super) routes: Routes,
    pub(super) limits: Arc<Limits>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) http: Option<Arc<dyn HttpService>>,
    pub(super) compression: Option<(Encoding, usize)>,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) connections: AtomicUsize,
    pub(super) refusals: AtomicUsize,
    /// Calls that wait for something, over all connections.
    pub(super) calls: AtomicUsize,
}
