//! Failures of tasks.

use std::time::Duration;

/// Reason why a task has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The server's threads have ended.
    #[error("the server is stopping; ask another one or try again later")]
    Stopped,
    /// Its turn would come too late; the delay after which to retry.
    #[error("too many CPU tasks wait and this one was not begun; try again in {} ms", .0.as_millis())]
    Overloaded(Duration),
}
