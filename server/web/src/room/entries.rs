//! Entries of the log as rows.

use std::time::{Duration, UNIX_EPOCH};

use bookstore::{
    Bookstore, Cents, Fault,
    bookstore::Paged,
    domain::{Entry, EntryKind, LogFilter},
};

use super::parts::LogRow;
use crate::locale::Locale;

/// Entries on a page.
const PAGE_ENTRIES: usize = 50;

/// The first page of the chosen entries before a number that has any, newest first.
pub(crate) async fn page(store: &Bookstore, before: i64, filter: &LogFilter) -> Result<Paged<Vec<Entry>, i64>, Fault> {
    let mut before = before;
    loop {
        let page = match store.find_log(before, filter.clone(), PAGE_ENTRIES).await {
            Ok(page) => page,
            // A lower limit on pages.
            Err(_) => store.find_log(before, filter.clone(), 0).await?,
        };
        match page.next {
            Some(next) if page.items.is_empty() => before = next,
            _ => return Ok(page),
        }
    }
}

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
        (Some(listed), EntryKind::Delisted | EntryKind::Listed) => if listed == 0 { "no" } else { "yes" }.to_owned(),
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
        by: match &entry.actor {
            Some(actor) => actor.to_string(),
            // A book that came with the store or from a file, and purchases, have no operator.
            None if matches!(entry.kind, EntryKind::Added | EntryKind::Purchase | EntryKind::Refused) => String::new(),
            None => "another program".to_owned(),
        },
    }
}

/// In RFC 3339, in UTC.
pub(crate) fn timestamp(time_ms: i64) -> String {
    let since = Duration::from_millis(u64::try_from(time_ms).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).map_or_else(String::new, |time| humantime::format_rfc3339_seconds(time).to_string())
}
