//! Codes of the log's kinds, the same in every database.

use crate::domain::EntryKind;

/// A kind's code in the `kind` column.
pub(super) fn code(kind: EntryKind) -> i64 {
    let place = EntryKind::ALL.iter().position(|other| *other == kind).unwrap_or_default();
    i64::try_from(place).unwrap_or_default() + 1
}

/// The kind with this code.
pub(super) fn kind(code: i64) -> Option<EntryKind> {
    EntryKind::ALL.get(usize::try_from(code - 1).ok()?).copied()
}
