//! Faults that end a lean connection. They are sent to the other side in an ERROR frame.

use std::borrow::Cow;

use crate::counts::LeanEnd;

/// Fault code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultCode {
    /// An invalid frame, or one that is not allowed now.
    Malformed = 1,
    /// No common version.
    Version = 2,
    /// A limit was exceeded.
    Limit = 3,
    /// A serial that is not the next.
    Serial = 4,
    /// A reference to a name that is not in the table.
    Reference = 5,
    /// More messages than the window allows.
    Window = 6,
    /// Nothing came for too long, or nothing was read.
    Idle = 7,
    /// The server stops.
    Stopping = 8,
    /// A missing token, or one that does not permit games.
    Denied = 9,
    /// A code this side does not know.
    Other = 0,
}

impl FaultCode {
    /// Reason under which a connection's end is counted.
    pub(super) fn end(self) -> LeanEnd {
        match self {
            Self::Malformed | Self::Other => LeanEnd::Malformed,
            Self::Version => LeanEnd::Version,
            Self::Limit => LeanEnd::Limit,
            Self::Serial => LeanEnd::Serial,
            Self::Reference => LeanEnd::Reference,
            Self::Window => LeanEnd::Window,
            Self::Idle => LeanEnd::Idle,
            Self::Stopping => LeanEnd::Stopping,
            Self::Denied => LeanEnd::Denied,
        }
    }

    pub(super) fn read(number: u64) -> Self {
        let known = [
            Self::Malformed,
            Self::Version,
            Self::Limit,
            Self::Serial,
            Self::Reference,
            Self::Window,
            Self::Idle,
            Self::Stopping,
            Self::Denied,
        ];
        known.into_iter().find(|code| *code as u64 == number).unwrap_or(Self::Other)
    }
}

/// Reason for the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    /// Its code.
    pub code: FaultCode,
    /// The fault, and what would be right.
    pub text: Cow<'static, str>,
}

impl Fault {
    pub(super) fn new(code: FaultCode, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, text: text.into() }
    }

    pub(super) fn malformed(text: &'static str) -> Self {
        Self::new(FaultCode::Malformed, text)
    }

    pub(super) fn too_many_connections(most: usize) -> Self {
        let told = format!("the server's limit rpcgame.lean_connections is {most}: close another connection first");
        Self::new(FaultCode::Limit, told)
    }

    pub(super) fn limit(what: &str, value: usize, setting: &str, most: usize) -> Self {
        Self::new(FaultCode::Limit, format!("{what} is {value}: the server's limit {setting} is {most}"))
    }
}
