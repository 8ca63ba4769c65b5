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
pub(crate) const PAGE_ENTRIES: usize = 50;

/// Parts of the log that one look for a page reads; the next look goes on from there.
const PARTS_MAX: usize = 8;

type Found = Result<Paged<Vec<Entry>, i64>, Fault>;

/// The first page of the chosen entries before a number that has any, newest first. Without any in the newest parts of the log
/// it is empty, and has a next one if there are older parts.
pub(crate) async fn page(store: &Bookstore, before: i64, filter: &LogFilter, size: usize) -> Found {
    first_found(before, |before| async move {
        match store.find_log(before, filter.clone(), size).await {
            Err(Fault::Limit { .. }) => store.find_log(before, filter.clone(), 0).await,
            found => found,
        }
    })
    .await
}

async fn first_found<F: Future<Output = Found>>(before: i64, find: impl Fn(i64) -> F) -> Found {
    let mut page = find(before).await?;
    for _ in 1..PARTS_MAX {
        match page.next {
            Some(next) if page.items.is_empty() => page = find(next).await?,
            _ => break,
        }
    }
    Ok(page)
}

/// True for entries that the filter chooses.
pub(crate) fn is_chosen(filter: &LogFilter, entry: &Entry) -> bool {
    filter.from_ms.is_none_or(|from_ms| entry.time_ms >= from_ms)
        && filter.to_ms.is_none_or(|to_ms| entry.time_ms < to_ms)
        && filter.book.is_none_or(|book| entry.book == book)
        && (filter.kinds.is_empty() || filter.kinds.contains(&entry.kind))
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
            // A book that came with the store or from a file, purchases and reservations have no operator.
            None => match entry.kind {
                EntryKind::Added
                | EntryKind::Purchase
                | EntryKind::Refused
                | EntryKind::Reserved
                | EntryKind::Released => String::new(),
                _ => "another program".to_owned(),
            },
        },
    }
}

/// In RFC 3339, in UTC.
pub(crate) fn timestamp(time_ms: i64) -> String {
    let since = Duration::from_millis(u64::try_from(time_ms).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).map_or_else(String::new, |time| humantime::format_rfc3339_seconds(time).to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use bookstore::{
        BookId,
        bookstore::Paged,
        domain::{Entry, EntryKind, LogFilter},
    };

    use super::{PARTS_MAX, first_found, is_chosen};

    #[tokio::test]
    async fn a_look_for_a_rare_entry_ends_and_can_be_continued() {
        let parts = AtomicI64::new(0);
        let find = |before: i64| {
            parts.fetch_add(1, Ordering::Relaxed);
            async move { Ok(Paged { items: Vec::new(), next: Some(before - 1) }) }
        };
        let page = first_found(1_000, find).await.unwrap();
        let looked = i64::try_from(PARTS_MAX).unwrap();
        assert_eq!((parts.into_inner(), page.items.len(), page.next), (looked, 0, Some(1_000 - looked)));
    }

    #[test]
    fn a_filter_chooses_by_time_book_and_kind() {
        let book = BookId::parse("7").unwrap();
        let kind = EntryKind::Restock;
        let entry = Entry {
            number: 1,
            time_ms: 50,
            kind,
            book,
            quantity: None,
            before: None,
            after: None,
            key: None,
            actor: None,
            until_ms: None,
        };
        let all = LogFilter::default();
        for (filter, is) in [
            (all.clone(), true),
            (LogFilter { from_ms: Some(50), to_ms: Some(51), book: Some(book), kinds: vec![kind] }, true),
            (LogFilter { from_ms: Some(51), ..all.clone() }, false),
            (LogFilter { to_ms: Some(50), ..all.clone() }, false),
            (LogFilter { book: BookId::parse("8").ok(), ..all.clone() }, false),
            (LogFilter { kinds: vec![EntryKind::Price], ..all }, false),
        ] {
            assert_eq!(is_chosen(&filter, &entry), is, "{filter:?}");
        }
    }
}
