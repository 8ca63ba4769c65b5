//! Faults as text for the command line, and shell quoting.

use quire_rpc::{
    Code,
    client::{NO_TLS, ONLY_TLS, UNTRUSTED},
};
use quire_terminal::screen;
use serde_json::{Value, json};

use crate::{Error, Fault};

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

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_if_a_shell_would_see_more_in_them() {
        let line = quoted(["quire", "--key", "order 17", "it's", "", "a@b:1,[c]", "\u{1b}[2J x", "Bücher"]);
        assert_eq!(line, r#"quire --key 'order 17' 'it'"'"'s' '' 'a@b:1,[c]' \u{1b}[2J x 'Bücher'"#);
    }
}
