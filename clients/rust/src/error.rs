//! Failures of calls: invalid arguments, and three kinds of fault, distinguished by what the server may have done.

use std::{error, fmt};

use quire_rpc::{Code, Reach, Status, client::TransportError};

/// A failed call. Its source, if there is one, is that of the connection, down to the error of the socket or of TLS.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// An invalid argument; nothing was sent. The text names the argument and its valid form.
    Argument(String),
    /// The server understood the call and refused it.
    Refused(Fault),
    /// Nothing was done, or the call changes nothing. The message has the address and the cause.
    Unreachable(Fault),
    /// The server may have executed the call. Purchases and reservations never fail with it: theirs are
    /// [`Outcome::Unknown`](crate::Outcome::Unknown) and [`Reserved::Unknown`](crate::Reserved::Unknown).
    OutcomeUnknown(Fault),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(text) => f.write_str(text),
            Self::Refused(fault) => write!(f, "the server refused: {fault}"),
            Self::Unreachable(fault) => fault.fmt(f),
            Self::OutcomeUnknown(fault) => write!(f, "it is not known whether it was done: {fault}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.fault()?.cause.as_ref().map(|cause| cause as _)
    }
}

/// Details of a failed call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fault {
    /// gRPC's code.
    pub code: Code,
    /// Message of the server or the connection.
    pub message: String,
    /// True if the last attempt was sent.
    pub sent: bool,
    pub(crate) cause: Option<TransportError>,
}

impl PartialEq for Fault {
    fn eq(&self, other: &Self) -> bool {
        (self.code, &self.message, self.sent) == (other.code, &other.message, other.sent)
    }
}

impl Eq for Fault {}

impl Fault {
    pub(crate) fn new(status: &Status, sent: bool) -> Self {
        let code = if sent { status.code() } else { Code::Unavailable };
        Self { code, message: status.message().to_owned(), sent, cause: status.transport().cloned() }
    }

    /// A fault whose message has the address, what it did, and the cause.
    pub(crate) fn at(address: &str, status: &Status, sent: bool) -> Self {
        let fault = Self::new(status, sent);
        let (code, said) = (fault.code, &fault.message);
        let message = match status.reach() {
            // The engine names the one of several addresses that it tried last.
            _ if !sent => {
                let cause = said.strip_prefix("cannot reach ").and_then(|rest| rest.split_once(": "));
                format!("{address} cannot be reached: {}", cause.map_or(said.as_str(), |(_, cause)| cause))
            }
            Reach::Answered if said.is_empty() => format!("{address} answered {}", code.name()),
            Reach::Answered => format!("{address} answered {}: {said}", code.name()),
            _ if code == Code::DeadlineExceeded => format!("{address} did not answer: time is up"),
            _ => format!("{address} did not answer: {fault}"),
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
