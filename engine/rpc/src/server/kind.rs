//! State shared by requests with the same head.

use std::sync::Arc;

use quire_http2::Head;

use super::plan::CallPlan;

/// State shared by requests with the same head.
pub(super) struct Kind {
    pub(super) head: Arc<Head>,
    /// The call, if it may begin as soon as its message is complete.
    pub(super) direct: Option<CallPlan>,
}
