//! Exit codes of all commands.

use std::process::ExitCode;

/// Exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Measured; objectives, if any, were met.
    Done = 0,
    /// An objective was missed.
    Missed = 1,
    /// Nothing could be measured.
    Failed = 2,
    /// Measured, but invalid.
    Invalid = 3,
    /// Too few data to decide the objectives.
    Inconclusive = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
