//! Entries of the log as rows.

use std::time::{Duration, UNIX_EPOCH};

use bookstore::{
    Bookstore, Cents,
    domain::{Entry, EntryKind},
};

use super::parts::LogRow;
use crate::locale::Locale;

/// Each entry with the title of its book; empty if the book is not in the catalogue.
pub(crate) async fn titled(store: &Bookstore, entries: Vec<Entry>) -> Vec<(Entry, String)> {
    let mut titled = Vec::with_capacity(entries.len());
    for entry in entries {
        let book = store.lookup(entry.book).await.ok().flatten();
        titled.push((entry, book.map_or_else(String::new, |book| book.title().to_owned())));
    }
    titled
}

/// The entries in the operator's form of numbers.
pub(crate) fn rows(entries: &[(Entry, String)], locale: Locale) -> Vec<LogRow> {
    entries.iter().map(|(entry, title)| row(entry, title, locale)).collect()
}

fn row(entry: &Entry, title: &str, locale: Locale) -> LogRow {
    let amount = |value: Option<i64>| match (value, entry.kind) {
        (None, _) => String::new(),
        (Some(cents), EntryKind::Price) => locale.price(Cents::new(cents).unwrap_or_default()),
        (Some(copies), _) => locale.count(copies),
    };
    LogRow {
        number: entry.number,
        time: timestamp(entry.time_ms),
        kind: entry.kind.name(),
        book: entry.book.get(),
        title: title.to_owned(),
        before: amount(entry.before),
        after: amount(entry.after),
        copies: entry.quantity.filter(|copies| *copies != 1).map(|copies| locale.count(copies)).unwrap_or_default(),
        by: String::new(),
    }
}

/// In RFC 3339, in UTC.
pub(crate) fn timestamp(time_ms: i64) -> String {
    let since = Duration::from_millis(u64::try_from(time_ms).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).map_or_else(String::new, |time| humantime::format_rfc3339_seconds(time).to_string())
}
