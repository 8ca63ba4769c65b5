//! Faults as text and exit codes, and shell quoting.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use quire_rpc::{
    Code,
    client::{NO_TLS, ONLY_TLS, UNTRUSTED},
};
use quire_terminal::screen;
use serde_json::{Value, json};

use crate::{Error, Fault};

/// Exit code of a command, ordered from best to worst: a script exits with its worst result.
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

/// Text of a fault in one line; `address` is the server's.
pub fn fault_text(error: &Error, address: &str) -> String {
    match error {
        Error::Argument(reason) => reason.clone(),
        Error::Refused(fault) => fault.to_string(),
        Error::Unreachable(fault) if fault.is_sent => format!("{address} did not answer: {}", cause(fault)),
        Error::Unreachable(fault) if fault.message.ends_with(UNTRUSTED) => {
            format!("{address} cannot be reached: {UNTRUSTED}; --ca FILE names the certificates that are")
        }
        Error::Unreachable(fault) => match [NO_TLS, ONLY_TLS].iter().find(|reason| fault.message.ends_with(**reason)) {
            Some(reason) => format!("{address} cannot be reached: {reason}"),
            None => format!("{address} cannot be reached; is a server running there?"),
        },
        Error::OutcomeUnknown(fault) => cause(fault).to_owned(),
    }
}

/// Prints a text on standard error.
pub(super) fn complain(text: &str) {
    // If no one reads it, nothing else can be done.
    let _ = writeln!(io::stderr(), "{text}");
}

/// A fault as JSON, with its text.
pub fn fault_json(error: &Error, text: &str) -> Value {
    let outcome = match error {
        Error::OutcomeUnknown(_) => "UNKNOWN",
        Error::Unreachable(_) => "UNREACHABLE",
        Error::Argument(_) | Error::Refused(_) => "REFUSED",
    };
    let status = error.fault().map_or(Code::InvalidArgument, |fault| fault.code).name();
    json!({ "message": text, "outcome": outcome, "status": status, "success": false })
}

fn cause(fault: &Fault) -> &'static str {
    match fault.code {
        Code::DeadlineExceeded => "time is up",
        Code::Cancelled => "interrupted",
        Code::Unknown => "the server failed",
        _ => "the connection broke, or the server is not available",
    }
}

/// Quotes a command line for a shell. Words with terminal control characters are escaped and cannot be typed again.
pub fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quoted_word).collect::<Vec<_>>().join(" ")
}

fn quoted_word(word: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"@%_-+=:,./".contains(&byte);
    if !screen::is_plain(word) {
        screen::line(word).into_owned()
    } else if !word.is_empty() && word.bytes().all(is_bare) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r#"'"'"'"#))
    }
}
