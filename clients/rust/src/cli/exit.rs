//! How a command of a client ended, as its exit code says it.

use std::process::ExitCode;

use crate::Error;

/// From the best to the worst, which is the order of the codes: a script that did several things ends with its worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// It worked.
    Done = 0,
    /// The server answered that it did not do it.
    Refused = 1,
    /// The command line or a command was not understood.
    Usage = 2,
    /// Nothing was sent, or nothing would have been changed.
    Unreachable = 3,
    /// The server may have done it.
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
