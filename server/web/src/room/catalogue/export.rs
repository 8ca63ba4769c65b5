//! Files to keep: the catalogue, the log and sums of sales, as CSV or JSON, a page at a time.

use std::{borrow::Cow, fmt::Write as _, io};

use axum::{body::Body, extract::State, response::Response};
use bookstore::{
    BookId, Bookstore, Cents, Fault,
    domain::{Entry, EntryKind, LogFilter},
    exchange,
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde_json::json;

use crate::room::{backups::file, entries::timestamp, log, operator::Operator, state::Room};
use crate::{request::query, visit::Visit};

/// A line of CSV (RFC 4180).
pub(crate) fn csv<'c>(cells: impl IntoIterator<Item = Cow<'c, str>>) -> String {
    let quoted = |cell: Cow<'c, str>| {
        let is_plain = !cell.contains(['"', ',', '\r', '\n']);
        if is_plain { cell } else { Cow::Owned(format!("\"{}\"", cell.replace('"', "\"\""))) }
    };
    let cells: Vec<Cow<'c, str>> = cells.into_iter().map(quoted).collect();
    cells.join(",") + "\n"
}

/// A file a page at a time. A page that fails breaks off the transfer, so that a part never passes for the whole.
fn pages<A, F>(
    first: A,
    head: String,
    page: impl Fn(A, String) -> F + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static
where
    A: Send + 'static,
    F: Future<Output = Result<(String, Option<A>), Fault>> + Send + 'static,
{
    stream::try_unfold((Some(first), head), move |(at, head)| {
        let found = at.map(|at| page(at, head));
        async move {
            let Some(found) = found else { return Ok(None) };
            let (text, next) = found.await.map_err(io::Error::other)?;
            Ok(Some((Bytes::from(text), (next, String::new()))))
        }
    })
}

/// The catalogue, in the form that an import reads. A page at a time is consistent, and not the whole.
pub(crate) async fn catalogue(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    operator.log(&visit, "export the catalogue");
    let (store, head) = (room.store().clone(), format!("{},{}\n", exchange::COLUMNS.join(","), exchange::LISTED));
    let pages = pages(None, head, move |after, head| {
        let store = store.clone();
        async move { books(&store, after, head).await.map(|(text, next)| (text, next.map(Some))) }
    });
    file("books.csv", "text/csv; charset=utf-8", Body::from_stream(pages))
}

async fn books(store: &Bookstore, after: Option<BookId>, mut text: String) -> Result<(String, Option<BookId>), Fault> {
    let page = store.list_all(after, 0).await?;
    for book in &*page.items {
        let (id, stock, price) = (book.id().to_string(), book.stock().to_string(), book.price().to_string());
        let (title, topic) = (exchange::marked(book.title()), exchange::marked(book.topic()));
        let listed = if book.is_listed() { "yes" } else { "no" };
        text += &csv([id.into(), title, topic, stock.into(), price.into(), listed.into()]);
    }
    Ok((text, page.next))
}

/// The log with the filters of its page, newest first.
pub(crate) async fn log_file(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    operator.log(&visit, "export the log");
    let (filter, store) = (log::filter(&visit), room.store().clone());
    let is_json = query(&visit.uri, "as").as_deref() == Some("json");
    let head =
        if is_json { String::new() } else { "number,time,kind,book,quantity,before,after,key,actor\n".to_owned() };
    let asked = (store, filter, is_json);
    let pages = pages(i64::MAX, head, move |before, head| {
        let asked = asked.clone();
        async move { entries(&asked, before, head).await }
    });
    let (name, kind) = if is_json {
        ("log.jsonl", "application/jsonl; charset=utf-8")
    } else {
        ("log.csv", "text/csv; charset=utf-8")
    };
    file(name, kind, Body::from_stream(pages))
}

async fn entries(
    (store, filter, is_json): &(Bookstore, LogFilter, bool),
    before: i64,
    mut text: String,
) -> Result<(String, Option<i64>), Fault> {
    let page = store.find_log(before, filter.clone(), 0).await?;
    for entry in &page.items {
        if *is_json {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", as_json(entry));
        } else {
            text += &as_csv(entry);
        }
    }
    Ok((text, page.next))
}

fn amount(entry: &Entry, value: Option<i64>) -> String {
    match (value, entry.kind) {
        (None, _) => String::new(),
        (Some(cents), EntryKind::Price) => Cents::new(cents).unwrap_or_default().to_string(),
        (Some(copies), _) => copies.to_string(),
    }
}

fn key(entry: &Entry) -> String {
    entry.key.as_ref().map(|key| key.as_bytes().escape_ascii().to_string()).unwrap_or_default()
}

fn as_csv(entry: &Entry) -> String {
    let quantity = entry.quantity.map(|copies| copies.to_string()).unwrap_or_default();
    let actor = entry.actor.as_ref().map(|actor| actor.as_str().to_owned()).unwrap_or_default();
    csv([
        entry.number.to_string().into(),
        timestamp(entry.time_ms).into(),
        entry.kind.name().into(),
        entry.book.to_string().into(),
        quantity.into(),
        amount(entry, entry.before).into(),
        amount(entry, entry.after).into(),
        exchange::marked(&key(entry)).into_owned().into(),
        exchange::marked(&actor).into_owned().into(),
    ])
}

/// The unit of a value before and after.
fn unit(kind: EntryKind) -> Option<&'static str> {
    match kind {
        EntryKind::Price => Some("cents"),
        EntryKind::Delisted | EntryKind::Listed | EntryKind::Edited => None,
        _ => Some("copies"),
    }
}

fn as_json(entry: &Entry) -> serde_json::Value {
    json!({
        "number": entry.number,
        "time": timestamp(entry.time_ms),
        "kind": entry.kind.name(),
        "book": entry.book.get(),
        "quantity": entry.quantity,
        "unit": unit(entry.kind),
        "before": entry.before,
        "after": entry.after,
        "key": key(entry),
        "actor": entry.actor.as_ref().map(|actor| actor.as_str().to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use bookstore::Fault;
    use futures_util::StreamExt;

    use super::{csv, pages};

    #[tokio::test]
    async fn a_page_that_fails_breaks_off_the_file() {
        for last in [Ok(("b".to_owned(), None)), Err(Fault::Late)] {
            let is_whole = last.is_ok();
            let page = move |number, head: String| {
                let found = if number == 1 { Ok((head + "a", Some(2))) } else { last.clone() };
                async move { found }
            };
            let file: Vec<_> = pages(1, "head,".to_owned(), page).collect().await;
            assert_eq!(file[0].as_ref().unwrap(), "head,a");
            assert_eq!((file.len(), file[1].is_ok()), (2, is_whole));
        }
    }

    #[test]
    fn cells_with_marks_of_the_format_are_quoted() {
        let line = csv(["a".into(), "b,c".into(), "d\"e".into(), "f\ng".into(), "".into()]);
        assert_eq!(line, "a,\"b,c\",\"d\"\"e\",\"f\ng\",\n");
    }
}
