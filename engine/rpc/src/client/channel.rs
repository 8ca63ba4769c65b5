//! A [`Channel`]: its connections, and the choice of one for each call.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lane::Lane;
#[cfg(feature = "tower")]
use super::layered::Layered;
use super::settings::{ConnectError, Settings};
use super::target::Target;
use super::traffic::Traffic;
use crate::envelope::Request;
use crate::interceptor::Interceptor;
use crate::status::Status;

struct Inner {
    lanes: Vec<Arc<Lane>>,
    next: AtomicUsize,
    settings: Arc<Settings>,
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "layers alone ask for it"))]
    target: Arc<Target>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.close());
    }
}

/// Makes calls to a server, or to several equivalent ones. Clones share the connections, which close when the last
/// clone is dropped.
#[derive(Clone)]
pub struct Channel {
    inner: Arc<Inner>,
    /// Interceptors of this clone; nearly every channel has none.
    interceptors: Option<Arc<[Arc<dyn Interceptor>]>>,
    #[cfg(feature = "tower")]
    pub(super) layered: Option<Arc<Layered>>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({} connections)", self.inner.lanes.len())
    }
}

impl Channel {
    pub(super) fn new(lanes: Vec<Arc<Lane>>, settings: Arc<Settings>, target: Arc<Target>) -> Self {
        Self {
            inner: Arc::new(Inner { lanes, next: AtomicUsize::new(0), settings, target }),
            interceptors: None,
            #[cfg(feature = "tower")]
            layered: None,
        }
    }

    /// Returns a clone whose calls pass an interceptor before they are sent; several run in turn. Other clones are
    /// unaffected.
    #[must_use]
    pub fn intercepted(&self, interceptor: impl Interceptor) -> Self {
        let known = self.interceptors.iter().flat_map(|known| known.iter().cloned());
        let all = known.chain([Arc::new(interceptor) as Arc<dyn Interceptor>]).collect();
        Self { interceptors: Some(all), ..self.clone() }
    }

    /// Runs the interceptors on a request without its message.
    #[inline]
    pub(super) fn pass(&self, method: &str, mut request: Request<()>) -> Result<Request<()>, Status> {
        for interceptor in self.interceptors.iter().flat_map(|all| all.iter()) {
            interceptor.intercept(method, &mut request)?;
        }
        Ok(request)
    }

    /// The next connection in turn, skipping unreachable ones.
    pub(super) fn lane(&self) -> &Arc<Lane> {
        let lanes = &self.inner.lanes;
        let first = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let turn = |offset: usize| &lanes[first.wrapping_add(offset) % lanes.len()];
        let next = turn(0);
        if !next.is_failing() {
            return next;
        }
        let other = (1..lanes.len()).map(turn).find(|lane| !lane.is_failing());
        if other.is_some() {
            // The skipped one connects meanwhile, for later calls.
            next.want();
        }
        other.unwrap_or(next)
    }

    /// Waits until a connection is ready: the server has sent its first frame. Fails if connecting fails, and at once
    /// during the pause after a failure; no call is sent.
    pub async fn ready(&self) -> Result<(), ConnectError> {
        self.lane().ready().await
    }

    /// True if a connection is ready, without waiting as [`Channel::ready`] does. Only reads a flag.
    pub fn is_ready(&self) -> bool {
        self.inner.lanes.iter().any(|lane| lane.is_ready())
    }

    /// Like [`Channel::ready`], for every connection.
    pub(super) async fn all_ready(&self) -> Result<(), ConnectError> {
        for lane in &self.inner.lanes {
            lane.ready().await?;
        }
        Ok(())
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// True if the last attempt to connect failed on every connection.
    pub(super) fn is_failing(&self) -> bool {
        self.inner.lanes.iter().all(|lane| lane.is_failing())
    }

    #[cfg(feature = "tower")]
    pub(super) fn target(&self) -> &Arc<Target> {
        &self.inner.target
    }

    /// Rejects new calls, lets those in flight finish, and closes the connections.
    pub async fn close(&self) {
        for lane in &self.inner.lanes {
            lane.close();
        }
        for lane in &self.inner.lanes {
            lane.closed().await;
        }
    }

    /// Bytes over the sockets of all connections so far, including TLS and HTTP.
    pub fn traffic(&self) -> Traffic {
        self.inner.lanes.iter().map(|lane| lane.traffic()).fold(Traffic::default(), Traffic::plus)
    }
}
