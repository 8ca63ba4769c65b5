//! Exit codes of client commands.

use std::process::ExitCode;

use crate::Error;

/// Ordered from best to worst, like the codes: a script exits with its worst result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// The server refused.
    Refused = 1,
    /// Invalid command line or command.
    Usage = 2,
    /// Nothing was sent, or nothing would have been changed.
    Unreachable = 3,
    /// The outcome is unknown.
    Unknown = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error {
            Error::Argument(_) => Self::Usage,
            Error::Refused(_) => Self::Refused,
            Error::Unreachable(_) => Self::Unreachable,
            Error::OutcomeUnknown(_) => Self::Unknown,
        }
    }
}
