//! How a command of a client ended, as its exit code says it.

use std::process::ExitCode;

/// From the best to the worst, which is the order of the codes: a script that did several things ends with its worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    Done = 0,
    /// The server answered that it did not do it.
    Refused = 1,
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
