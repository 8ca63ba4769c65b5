//! Calls in gRPC, gRPC-Web and Connect over our own channel, one connection per session.
//!
//! Messages are bytes here: they are encoded before a call is timed, and an answer is decoded only if its ending
//! depends on it.

mod call;
mod endings;
mod payload;
mod schema;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quire_rpc::Metadata;
use quire_rpc::client::{Codec, Path, Protocol, Settings};

pub use call::GrpcSession;
pub use endings::{Classify, Endings, OWN_ENDINGS_FIRST, OutcomeField};
pub use payload::{DATA_BYTES_MAX, MESSAGES_MAX, Payload, Requests, example, message_from_json};
pub use schema::{DESCRIPTOR_FILES_MAX, Schema, Shape, split_method};
pub use target::Target;

use super::Workload;
use super::channel::settings;
use call::Shared;

/// Maximum size of an answer's message, decompressed.
pub const REPLY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Default requests in flight on a connection.
const IN_FLIGHT_DEFAULT: usize = 1024;

/// Calls of one method of one server.
#[derive(Clone)]
#[must_use]
pub struct GrpcWorkload {
    shared: Arc<Shared>,
}

impl GrpcWorkload {
    /// Calls of `/package.Service/Method` with these requests.
    pub fn new(target: Target, path: &str, shape: Shape, requests: Requests) -> Self {
        let settings = Settings { message_bytes_max: REPLY_BYTES_MAX, ..settings(IN_FLIGHT_DEFAULT) };
        let (metadata, deadline, endings) = (Metadata::new(), None, Endings::default());
        let path = Path::named(path);
        Self { shared: Arc::new(Shared { target, path, shape, requests, metadata, deadline, settings, endings }) }
    }

    /// Target of the calls.
    pub fn target(&self) -> &Target {
        &self.shared.target
    }

    fn change(mut self, change: impl FnOnce(&mut Shared)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }

    /// Sets the protocol and the codec; requests must be in this codec already. The default is gRPC with protobuf.
    pub fn speaking(self, protocol: Protocol, codec: Codec) -> Self {
        self.change(|shared| (shared.settings.protocol, shared.settings.codec) = (protocol, codec))
    }

    /// Sets the metadata of every call.
    pub fn metadata(self, metadata: Metadata) -> Self {
        self.change(|shared| shared.metadata = metadata)
    }

    /// Sets the deadline of a call, which is sent to the server.
    pub fn deadline(self, deadline: Option<Duration>) -> Self {
        self.change(|shared| shared.deadline = deadline)
    }

    /// Compresses requests of any size, if that makes them shorter.
    pub fn compression(self, encoding: Option<quire_rpc::Encoding>) -> Self {
        self.change(|shared| shared.settings.compression = encoding.map(|encoding| (encoding, 0)))
    }

    /// Sets the encodings that the server may compress answers with.
    pub fn accepts(self, encodings: &[quire_rpc::Encoding]) -> Self {
        self.change(|shared| shared.settings.accepts = encodings.to_vec())
    }

    /// Sets the maximum calls in flight on a connection; further ones wait.
    pub fn in_flight_max(self, in_flight: usize) -> Self {
        self.change(|shared| shared.settings.calls_per_connection_max = in_flight.max(1))
    }

    /// Sets the classification of answers beyond their status.
    pub fn endings(self, endings: Endings) -> Self {
        self.change(|shared| shared.endings = endings)
    }
}

impl fmt::Debug for GrpcWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrpcWorkload({:?} of {})", self.shared.path, self.shared.target)
    }
}

impl Workload for GrpcWorkload {
    type Session = GrpcSession;

    async fn open(&self, _: usize) -> anyhow::Result<GrpcSession> {
        let channel = self.shared.target.connect(self.shared.settings.clone()).await?;
        let wire = match &self.shared.requests {
            Requests::Constant(messages) if self.shared.shape == Shape::UNARY => {
                messages.first().map(|message| channel.wire_message(message))
            }
            _ => None,
        };
        Ok(GrpcSession { shared: Arc::clone(&self.shared), channel, wire })
    }

    fn label(&self, ending: u16) -> String {
        self.shared.endings.label(ending)
    }
}
