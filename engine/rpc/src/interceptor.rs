//! Interceptors: inspect every call before it is made or handled, for credentials, limits or trace ids.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::envelope::Request;
use crate::status::Status;

/// Inspects a call's metadata, deadline and peer, changes them, or rejects the call. Functions of these arguments are
/// interceptors too.
///
/// On a server it runs when the head has arrived, before any of the body is kept, in the connection's task: it must be
/// quick and must not block. Results for the handler go into [`Request::extensions_mut`].
pub trait Interceptor: Send + Sync + 'static {
    /// `method` is `/package.Service/Method`. An error ends the call.
    fn intercept(&self, method: &str, request: &mut Request<()>) -> Result<(), Status>;
}

impl<F: Fn(&str, &mut Request<()>) -> Result<(), Status> + Send + Sync + 'static> Interceptor for F {
    fn intercept(&self, method: &str, request: &mut Request<()>) -> Result<(), Status> {
        self(method, request)
    }
}

/// Completes with the status that a call is to end with.
pub(crate) type Ending = Pin<Box<dyn Future<Output = Status> + Send>>;

/// Ends calls that stream from outside, as when the caller's credential is revoked. A server's interceptor puts it among a
/// request's extensions.
#[derive(Clone)]
pub struct Until(Arc<dyn Fn() -> Ending + Send + Sync>);

impl Until {
    /// Calls end with the status of the future that `end` makes for each.
    pub fn new<F>(end: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Status> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(end())))
    }

    pub(crate) fn begin(&self) -> Ending {
        (self.0)()
    }
}

impl fmt::Debug for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Until")
    }
}
