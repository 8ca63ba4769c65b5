//! Interceptors: inspect every call before it is made or handled, for credentials, limits or trace ids.

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
