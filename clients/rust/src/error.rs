//! Why a call failed: three kinds of fault, told apart by what the server may have done, and wrong arguments.

use std::fmt;

use quire_rpc::{Code, Status};

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was sent, because an argument is wrong; the text names it and what would be right.
    #[error("{0}")]
    Argument(String),
    /// The server understood the call and will not do it.
    #[error("the server refused: {0}")]
    Refused(Fault),
    /// Nothing was done, or what was asked changes nothing.
    #[error("no answer from the server: {0}")]
    Unreachable(Fault),
    /// The server may have done it. Purchases never end so: theirs is [`Outcome::Unknown`](crate::Outcome::Unknown).
    #[error("it is not known whether it was done: {0}")]
    OutcomeUnknown(Fault),
}

/// What is known of a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// gRPC's code.
    pub code: Code,
    /// The server's message, or the connection's.
    pub message: String,
    /// Whether the last attempt got as far as being sent.
    pub is_sent: bool,
}

impl Fault {
    pub(crate) fn new(status: &Status, is_sent: bool) -> Self {
        let code = if is_sent { status.code() } else { Code::Unavailable };
        Self { code, message: status.message().to_owned(), is_sent }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => f.write_str(self.code.name()),
            message => f.write_str(message),
        }
    }
}

impl Error {
    /// What is known of it, unless it is a wrong argument.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Argument(_) => None,
            Self::Refused(fault) | Self::Unreachable(fault) | Self::OutcomeUnknown(fault) => Some(fault),
        }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::Argument(text.into())
    }
}
