//! Calls in gRPC, gRPC-Web and Connect over our own channel, a connection a session.
//!
//! A call's messages are bytes here: they are encoded before it is timed, and an answer is looked into only where its
//! ending depends on it. Must not know where messages come from (`payload`) nor how contracts are found (`schema`).

mod call;
mod endings;
mod example;
mod fit;
mod nearest;
mod outcome;
mod payload;
mod reflection;
mod schema;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quire_rpc::Metadata;
use quire_rpc::client::{Codec, Path, Protocol, Settings};

pub use call::GrpcSession;
pub use endings::{Classify, Endings, OWN_ENDINGS_FIRST};
pub use example::example;
pub use fit::message_from_json;
pub use outcome::OutcomeField;
pub use payload::{DATA_BYTES_MAX, MESSAGES_MAX, Payload, Requests};
pub use reflection::DESCRIPTOR_FILES_MAX;
pub use schema::{Schema, Shape, split_method};
pub use target::Target;

use super::Workload;
use super::channel::settings;
use call::Shared;

/// An answer's message, decompressed, up to this.
pub const REPLY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Requests at once on a connection unless said otherwise.
const IN_FLIGHT_DEFAULT: usize = 1024;

/// Calls of one method of one server.
#[derive(Clone)]
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

    /// Where the calls go.
    pub fn target(&self) -> &Target {
        &self.shared.target
    }

    fn change(mut self, change: impl FnOnce(&mut Shared)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }

    /// What is spoken, and how messages are written; requests must be in this codec already. Without it gRPC, and
    /// protobuf.
    #[must_use]
    pub fn speaking(self, protocol: Protocol, codec: Codec) -> Self {
        self.change(|shared| (shared.settings.protocol, shared.settings.codec) = (protocol, codec))
    }

    /// Sent with every call.
    #[must_use]
    pub fn metadata(self, metadata: Metadata) -> Self {
        self.change(|shared| shared.metadata = metadata)
    }

    /// The deadline of a call; the server is told it.
    #[must_use]
    pub fn deadline(self, deadline: Option<Duration>) -> Self {
        self.change(|shared| shared.deadline = deadline)
    }

    /// Compresses requests, however short, where that makes them shorter.
    #[must_use]
    pub fn compression(self, encoding: Option<quire_rpc::Encoding>) -> Self {
        self.change(|shared| shared.settings.compression = encoding.map(|encoding| (encoding, 0)))
    }

    /// What answers may be compressed with, as the server is told.
    #[must_use]
    pub fn accepts(self, encodings: &[quire_rpc::Encoding]) -> Self {
        self.change(|shared| shared.settings.accepts = encodings.to_vec())
    }

    /// Calls at once on a connection; further ones would wait for their turn.
    #[must_use]
    pub fn in_flight_max(self, in_flight: usize) -> Self {
        self.change(|shared| shared.settings.calls_per_connection_max = in_flight.max(1))
    }

    /// What answers are told apart by beyond their status.
    #[must_use]
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
