//! Failures of calls: invalid arguments, and three kinds of fault, distinguished by what the server may have done.

use std::fmt;

use quire_rpc::{Code, Status};

/// A failed call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid argument; nothing was sent. The text names the argument and its valid form.
    #[error("{0}")]
    Argument(String),
    /// The server understood the call and refused it.
    #[error("the server refused: {0}")]
    Refused(Fault),
    /// Nothing was done, or the call changes nothing. The message has the address and the cause.
    #[error("{0}")]
    Unreachable(Fault),
    /// The server may have executed the call. Purchases and reservations never fail with it: theirs are
    /// [`Outcome::Unknown`](crate::Outcome::Unknown) and [`Reserved::Unknown`](crate::Reserved::Unknown).
    #[error("it is not known whether it was done: {0}")]
    OutcomeUnknown(Fault),
}

/// Details of a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// gRPC's code.
    pub code: Code,
    /// Message of the server or the connection.
    pub message: String,
    /// True if the last attempt was sent.
    pub is_sent: bool,
}

impl Fault {
    pub(crate) fn new(status: &Status, is_sent: bool) -> Self {
        let code = if is_sent { status.code() } else { Code::Unavailable };
        Self { code, message: status.message().to_owned(), is_sent }
    }

    /// A fault whose message has the address and the cause.
    pub(crate) fn unreachable(address: &str, status: &Status, is_sent: bool) -> Self {
        let fault = Self::new(status, is_sent);
        let message = if is_sent {
            format!("{address} did not answer: {fault}")
        } else {
            // The engine names the one of several addresses that it tried last.
            let said = &fault.message;
            let cause = said.strip_prefix("cannot reach ").and_then(|rest| rest.split_once(": "));
            format!("{address} cannot be reached: {}", cause.map_or(said.as_str(), |(_, cause)| cause))
        };
        Self { message, ..fault }
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
    /// Details of the failure, unless it is an invalid argument.
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
