//! Reasons for the end of a connection, for logs and metrics.

use crate::line::BadLine;

/// Reason for the end of a connection.
#[derive(Debug)]
pub(crate) enum Closed {
    /// The client has ended its side and received its replies.
    Finished,
    /// An invalid line.
    BadLine(BadLine),
    /// A missing token, or one that does not permit tasks.
    Denied(String),
    /// No request for too long.
    Idle,
    /// Replies were left unread for too long.
    Unread,
    /// The server stops; requests in flight have been answered.
    Drained,
    /// It made room for another client; what was in flight has been answered.
    Replaced,
    /// The connection failed.
    Broken(std::io::Error),
    /// The server has stopped.
    Stopped,
}

impl Closed {
    /// Name in metrics and logs.
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

    /// Details beyond the name.
    pub(crate) fn details(&self) -> Option<&dyn std::fmt::Display> {
        match self {
            Self::BadLine(bad) => Some(bad),
            Self::Denied(why) => Some(why),
            Self::Broken(error) => Some(error),
            _ => None,
        }
    }
}
