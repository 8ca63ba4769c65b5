//! Calls to services within the process, without a port or a credential.

use std::sync::Arc;

use hosting::Client;
use quire_rpc::{
    Limits, Request,
    client::{Channel, ConnectError, Settings},
    server::Builder,
};

/// A page of books or entries is far smaller.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// A channel to services of this process; in the log its caller has the name `actor`. Needs a surrounding runtime.
pub(crate) fn channel(services: Builder, actor: &str) -> Result<Channel, ConnectError> {
    let caller = Client::Credential(Arc::from(actor));
    let named = move |_: &str, request: &mut Request<()>| {
        request.extensions_mut().insert(caller.clone());
        Ok(())
    };
    let server = services.limits(Limits::default()).interceptor(named).build();
    let settings = Settings { message_bytes_max: MESSAGE_BYTES_MAX, ..Settings::default() };
    Channel::builder("http://localhost")?.settings(settings).connector(server).connect_lazy()
}
