//! Why a connection ended, for logs and metrics. Must not know what a connection does.

use crate::line::BadLine;

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Closed {
    /// The client sends no more and has its replies.
    Finished,
    /// A line that is no task.
    BadLine(BadLine),
    /// No token, or one that does not admit to tasks.
    Denied(String),
    /// Nothing was asked for too long.
    Idle,
    /// Replies were left unread for too long.
    Unread,
    /// The server stops; what was in flight has been answered.
    Drained,
    /// It made room for another client; what was in flight has been answered.
    Replaced,
    /// The connection failed.
    Broken(std::io::Error),
    /// The server has stopped.
    Stopped,
}

impl Closed {
    /// The name it has in metrics, and in logs beside its details.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::BadLine(_) => "bad line",
            Self::Denied(_) => "denied",
            Self::Idle => "idle",
            Self::Unread => "unread",
            Self::Drained => "drained",
            Self::Replaced => "replaced",
            Self::Broken(_) => "broken",
            Self::Stopped => "stopped",
        }
    }

    /// What there is to say beyond the name.
    pub(crate) fn details(&self) -> Option<&dyn std::fmt::Display> {
        match self {
            Self::BadLine(bad) => Some(bad),
            Self::Denied(why) => Some(why),
            Self::Broken(error) => Some(error),
            _ => None,
        }
    }
}
