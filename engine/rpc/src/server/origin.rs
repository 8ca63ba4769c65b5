//! The parts of a call's request except its message, assembled on demand: most bytes methods never ask.

use std::sync::Arc;

use quire_http2::Head;
use tokio::time::Instant;

use crate::compression::Accepted;
use crate::envelope::{Peer, Request};
use crate::metadata::Metadata;

/// Metadata, deadline and peer of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    head: &'a Arc<Head>,
    peer: &'a Arc<Peer>,
    deadline: Option<Instant>,
    accepted: Accepted,
}

impl<'a> Origin<'a> {
    #[inline]
    pub(super) fn new(accepted: Accepted, head: &'a Arc<Head>, deadline: Option<Instant>, peer: &'a Arc<Peer>) -> Self {
        Self { head, peer, deadline, accepted }
    }

    /// The request with this message.
    #[inline]
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let metadata = Metadata::received(Arc::clone(self.head));
        Request::received(message, metadata, self.deadline, Arc::clone(self.peer)).accepting(self.accepted)
    }
}
