//! Parts that both stores share: the orders of a process, its lines, and the finding of an audit.

use std::{io::Write as _, path::PathBuf};

/// Store under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The bookstore's ledger.
    Shop,
    /// The key-value store with its journal.
    Keys,
}

impl Subject {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shop => "shop",
            Self::Keys => "keys",
        }
    }
}

/// Orders of a process.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
    /// Begin of its idempotency keys.
    pub(crate) tag: String,
    pub(crate) steps: usize,
    /// It closes the store at the end, and is not killed.
    pub(crate) closes: bool,
}

/// Prints a line at once.
#[expect(clippy::print_stdout, reason = "the campaign reads it")]
pub(crate) fn say(line: &str) {
    println!("{}", line.replace('\n', " "));
    // As lines are flushed one by one, a killed process has printed what it acknowledged.
    let _ = std::io::stdout().flush();
}

/// Finding of an audit. Audits are processes of their own, as a start of a server is.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    /// Everything acknowledged is there, so many answers.
    Whole(usize),
    /// The store was refused, or `quire verify` or a call reports damage.
    Noticed(String),
    /// Something is lost or wrong, and nothing reports it.
    Wrong(String),
}

impl Finding {
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Whole(count) => format!("whole {count}"),
            Self::Noticed(what) => format!("noticed {what}"),
            Self::Wrong(what) => format!("wrong {what}"),
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "whole" => rest.parse().ok().map(Self::Whole),
            "noticed" => Some(Self::Noticed(rest.to_owned())),
            "wrong" => Some(Self::Wrong(rest.to_owned())),
            _ => None,
        }
    }
}
