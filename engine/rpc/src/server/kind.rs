//! What requests with the same head have in common.
//!
//! Must not know what is done with them.
//!
//! Implements: no specification.

use std::sync::Arc;

use quire_http2::Head;

use super::plan::CallPlan;

/// Requests with the same head.
pub(super) struct Kind {
    pub(super) head: Arc<Head>,
    /// The call that each of them is, if that may begin as soon as its message is there.
    pub(super) direct: Option<CallPlan>,
}
