//! The exit codes of every command.

use std::process::ExitCode;

/// What a command ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Measured; objectives, if any, held.
    Done = 0,
    /// An objective was missed.
    Missed = 1,
    /// Nothing could be measured.
    Failed = 2,
    /// Measured, and not to be believed.
    Invalid = 3,
    /// Too little was seen to say whether the objectives hold.
    Inconclusive = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
