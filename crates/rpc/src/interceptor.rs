//! What looks at every call before it is made or answered: credentials, limits, ids for traces.
//!
//! Must not know messages: they are not decoded yet, or not encoded.
//!
//! Implements: no specification.

use crate::envelope::Request;
use crate::status::Status;

/// Looks at a call's metadata, deadline and peer, changes them, or refuses the call. Functions of these arguments are
/// interceptors too.
///
/// On a server it runs when the head has come, before any of the body is kept, in the connection's task, so it must be quick
/// and must not block. What it finds out goes to the handler in [`Request::extensions_mut`].
pub trait Interceptor: Send + Sync + 'static {
    /// `method` is `/package.Service/Method`. With an error the call ends there.
    fn intercept(&self, method: &str, request: &mut Request<()>) -> Result<(), Status>;
}

impl<F: Fn(&str, &mut Request<()>) -> Result<(), Status> + Send + Sync + 'static> Interceptor for F {
    fn intercept(&self, method: &str, request: &mut Request<()>) -> Result<(), Status> {
        self(method, request)
    }
}
