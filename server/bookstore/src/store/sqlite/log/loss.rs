//! Loss of acknowledged entries, in words for an operator.

use std::{ops::RangeInclusive, path::Path};

/// Most ranges of numbers in a message.
const NAMED: usize = 5;

/// Entries that were acknowledged and are not in the log, or a head that cannot show whether there are such entries. Each
/// message names what to do.
#[derive(Debug, thiserror::Error)]
#[error("{what}; {remedy}, or go on with what the log holds by `quire serve --accept-loss {lost}`")]
pub struct Loss {
    pub(crate) what: String,
    remedy: &'static str,
    pub(crate) lost: u64,
    /// Numbers without an entry.
    pub(crate) missing: Vec<RangeInclusive<i64>>,
    /// Number of the last entry by the head.
    pub(crate) last: i64,
}

/// Remedy if the log is not as it was.
const RESTORE: &str =
    "restore a backup into a new folder with `quire restore` and keep this one, which the server has left as it was";

impl Loss {
    pub(crate) fn missing(path: &Path, missing: Vec<RangeInclusive<i64>>, last: i64) -> Self {
        let named: Vec<String> = missing.iter().take(NAMED).map(in_words).collect();
        let more = if missing.len() > NAMED { " and more" } else { "" };
        let lost = missing.iter().map(|numbers| numbers.end().abs_diff(*numbers.start()) + 1).sum();
        let entries = if lost == 1 { "an entry that was" } else { "entries that were" };
        let what = format!(
            "the log of {} has lost {entries} acknowledged, {}{more}: the file or its WAL was damaged, cut or replaced by an older one",
            path.display(),
            named.join(", ")
        );
        Self { what, remedy: RESTORE, lost, missing, last }
    }

    pub(crate) fn changed(path: &Path, from: i64, last: i64) -> Self {
        let what = format!(
            "the log of {} is not as it was acknowledged: among its {} at least one was changed or damaged",
            path.display(),
            in_words(&(from..=last))
        );
        Self { what, remedy: RESTORE, lost: last.abs_diff(from) + 1, missing: Vec::new(), last }
    }

    /// The head file is not that of this log, or cannot be read.
    pub(crate) fn unknown(what: String, lost: u64, last: i64) -> Self {
        let remedy = "put the file back that belongs to it, restore a backup into a new folder with `quire restore`";
        Self { what, remedy, lost, missing: Vec::new(), last }
    }
}

pub(crate) fn in_words(numbers: &RangeInclusive<i64>) -> String {
    let (from, to) = (numbers.start(), numbers.end());
    if from == to { format!("number {from}") } else { format!("numbers {from} to {to}") }
}
