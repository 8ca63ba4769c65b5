//! What a call's request is made of, all but its message, until something asks for the request: most methods of bytes never
//! do.
//!
//! Must not know how a request is handled.
//!
//! Implements: no specification.

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

    /// The request around a message.
    #[inline]
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let metadata = Metadata::received(Arc::clone(self.head));
        Request::received(message, metadata, self.deadline, Arc::clone(self.peer)).accepting(self.accepted)
    }
}
