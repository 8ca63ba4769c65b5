//! Why a task has no result. Must not know how that is written to a client.

/// The server's threads have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is stopping; ask another one or try again later")]
pub(crate) struct Stopped;
