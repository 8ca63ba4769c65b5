//! Answers as tables and as JSON.

use std::time::{Duration, UNIX_EPOCH};

use quire_client::{
    Book, Cents, LogEntry, LogEntryKind, Topic,
    wire::{
        bookstore::{ChangedBook, ImportReply, RefusedRow, SalesRow},
        quire::OpenConnection,
    },
};
use quire_terminal::{screen, table};
use serde_json::{Value, json};

pub(super) fn book(book: &Book) -> Value {
    json!({
        "id": book.id,
        "listed": book.listed,
        "price_cents": book.price.0,
        "stock": book.stock,
        "title": book.title,
        "topic": book.topic,
    })
}

pub(super) fn books(books: &[Book]) -> String {
    // The last column is empty but for delisted books.
    let columns = [("id", true), ("title", false), ("topic", false), ("stock", true), ("price", true), ("", false)];
    let row = |book: &Book| {
        let (stock, price) = (book.stock.to_string(), book.price.to_string());
        let listed = if book.listed { "" } else { "delisted" };
        [book.id.to_string(), book.title.clone(), book.topic.clone(), stock, price, listed.to_owned()]
    };
    table::render(columns, books.iter().map(row))
}

pub(super) fn topic(topic: &Topic) -> Value {
    json!({ "books": topic.books, "name": topic.name })
}

pub(super) fn topics(topics: &[Topic]) -> String {
    table::topics(topics.iter().map(|topic| (topic.name.clone(), topic.books.to_string())))
}

pub(super) fn entry(entry: &LogEntry) -> Value {
    json!({
        "actor": entry.actor,
        "after": entry.after,
        "before": entry.before,
        "book_id": entry.book_id,
        "key": key(entry),
        "kind": kind(entry),
        "number": entry.number,
        "quantity": entry.quantity,
        "time": timestamp(entry.time_ms),
    })
}

/// Columns of the log, with the width of each in a line that is shown alone.
const ENTRY: [(table::Column, usize); 8] = [
    (("number", true), 8),
    (("time", false), 24),
    (("what", false), 9),
    (("book", true), 10),
    (("quantity", true), 8),
    (("before", true), 10),
    (("after", true), 10),
    (("by", false), 0),
];

pub(super) fn entries(entries: &[LogEntry]) -> String {
    table::render(ENTRY.map(|(column, _)| column), entries.iter().map(cells))
}

/// The heads above lines of [`entry_line`].
pub(super) fn entry_heads() -> String {
    line(&ENTRY.map(|((head, _), _)| head.to_owned()))
}

/// An entry in a line that is shown before the next one is known.
pub(super) fn entry_line(entry: &LogEntry) -> String {
    line(&cells(entry))
}

fn line(cells: &[String; ENTRY.len()]) -> String {
    let aligned = cells.iter().zip(ENTRY).map(|(cell, ((_, is_number), width))| {
        let cell = screen::line(cell);
        if is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    });
    aligned.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

fn cells(entry: &LogEntry) -> [String; ENTRY.len()] {
    let amount = |value: Option<i64>| match (value, entry.kind()) {
        (None, _) => String::new(),
        (Some(cents), LogEntryKind::Price) => Cents(cents).to_string(),
        (Some(copies), _) => copies.to_string(),
    };
    [
        entry.number.to_string(),
        timestamp(entry.time_ms),
        kind(entry),
        entry.book_id.to_string(),
        entry.quantity.map(|copies| copies.to_string()).unwrap_or_default(),
        amount(entry.before),
        amount(entry.after),
        entry.actor.clone(),
    ]
}

/// The columns of exported entries.
pub(super) const ENTRY_COLUMNS: [&str; 9] =
    ["number", "time", "kind", "book_id", "quantity", "before", "after", "actor", "key"];

/// An entry as a row of CSV; prices as in tables.
pub(super) fn entry_row(entry: &LogEntry) -> Vec<String> {
    cells(entry).into_iter().chain([key(entry)]).collect()
}

/// The idempotency key as text, or as a number in hexadecimal if it is no text.
fn key(entry: &LogEntry) -> String {
    let hex = || entry.idempotency_key.iter().fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02x}"));
    std::str::from_utf8(&entry.idempotency_key).map_or_else(|_| hex(), str::to_owned)
}

/// The name of the kind, in small letters.
fn kind(entry: &LogEntry) -> String {
    let name = entry.kind().as_str_name();
    name.strip_prefix("LOG_ENTRY_KIND_").unwrap_or(name).to_lowercase()
}

/// In RFC 3339.
fn timestamp(time_ms: i64) -> String {
    let since = Duration::from_millis(u64::try_from(time_ms).unwrap_or(0));
    UNIX_EPOCH.checked_add(since).map_or_else(String::new, |time| humantime::format_rfc3339_millis(time).to_string())
}

pub(super) fn sales_row(row: &SalesRow) -> Value {
    json!({
        "book_id": Some(row.book_id).filter(|id| *id > 0),
        "cents": row.cents,
        "copies": row.copies,
        "copies_unpriced": row.copies_unpriced,
        "day": Some(&row.day).filter(|day| !day.is_empty()),
        "purchases": row.purchases,
        "title": Some(&row.title).filter(|title| !title.is_empty()),
    })
}

/// The columns of exported sales.
pub(super) const SALES_COLUMNS: [&str; 7] =
    ["day", "book_id", "title", "purchases", "copies", "money", "copies_unpriced"];

/// Sales as a row of CSV.
pub(super) fn sales_cells(row: &SalesRow) -> [String; SALES_COLUMNS.len()] {
    let count = |number: i64| if number == 0 { String::new() } else { number.to_string() };
    [
        row.day.clone(),
        count(row.book_id.into()),
        row.title.clone(),
        row.purchases.to_string(),
        row.copies.to_string(),
        Cents(row.cents).to_string(),
        row.copies_unpriced.to_string(),
    ]
}

/// Sales with their sum below them.
pub(super) fn sales(rows: &[SalesRow]) -> String {
    let columns = [
        ("day", false),
        ("book", true),
        ("title", false),
        ("purchases", true),
        ("copies", true),
        ("money", true),
        ("", false),
    ];
    let cells = rows.iter().map(|row| {
        let mut cells = sales_cells(row);
        let [.., last] = &mut cells;
        *last = if row.copies_unpriced > 0 { format!("and {last} copies without a price") } else { String::new() };
        cells
    });
    table::render(columns, cells)
}

pub(super) fn import(reply: &ImportReply, is_done: bool) -> Value {
    let book = |shown: &Option<_>| shown.clone().map(|shown| book(&Book::from(shown)));
    let changes: Vec<Value> = reply
        .changes
        .iter()
        .map(|change| json!({ "after": book(&change.after), "before": book(&change.before) }))
        .collect();
    let row = |row: &RefusedRow| json!({ "column": row.column, "line": row.line, "reason": row.reason });
    json!({
        "added": reply.added,
        "applied": is_done,
        "changed": reply.changed,
        "changes": changes,
        "refused": reply.refused,
        "refused_rows": reply.refused_rows.iter().map(row).collect::<Vec<_>>(),
        "unchanged": reply.unchanged,
    })
}

/// The counts of an import, in a sentence.
pub(super) fn counts(reply: &ImportReply, is_done: bool) -> String {
    let ImportReply { added, changed, unchanged, refused, .. } = reply;
    let books = if *added == 1 { "book" } else { "books" };
    let verbs = if is_done {
        ["added", "changed", "left as they were"]
    } else {
        ["to add", "to change", "to leave as they are"]
    };
    let bad = if *refused == 0 { String::new() } else { format!("; bad rows: {refused}") };
    format!("{added} {books} {}, {changed} {}, {unchanged} {}{bad}", verbs[0], verbs[1], verbs[2])
}

/// The first changes of an import and its bad rows, a line each.
pub(super) fn import_lines(reply: &ImportReply) -> Vec<String> {
    let more = |all: i64, shown: usize| all - i64::try_from(shown).unwrap_or(all);
    let mut lines: Vec<String> = reply.changes.iter().filter_map(change).collect();
    let rest = more(reply.changed, lines.len());
    lines.extend((rest > 0).then(|| format!("and {rest} more")));
    let bad = reply.refused_rows.iter();
    lines.extend(bad.map(|row| format!("line {}, column {}: {}", row.line, row.column, row.reason)));
    let rest = more(reply.refused, reply.refused_rows.len());
    lines.extend((rest > 0).then(|| format!("and {rest} more bad rows")));
    lines
}

fn change(change: &ChangedBook) -> Option<String> {
    let (before, after) = (Book::from(change.before.clone()?), Book::from(change.after.clone()?));
    Some(format!("book {}: {}", after.id, difference(&before, &after)))
}

/// Differences of two states of a book, in words.
pub(super) fn difference(before: &Book, after: &Book) -> String {
    let quoted = |text: &str| format!("'{text}'");
    let fields = [
        ("title", quoted(&before.title), quoted(&after.title)),
        ("topic", quoted(&before.topic), quoted(&after.topic)),
        ("stock", before.stock.to_string(), after.stock.to_string()),
        ("price", before.price.to_string(), after.price.to_string()),
    ];
    let changed = fields.into_iter().filter(|(_, before, after)| before != after);
    let mut words: Vec<String> =
        changed.map(|(name, before, after)| format!("{name} {after}, {before} before")).collect();
    match (before.listed, after.listed) {
        (true, false) => words.push("delisted".to_owned()),
        (false, true) => words.push("listed again".to_owned()),
        _ => {}
    }
    words.join("; ")
}

pub(super) fn connection(connection: &OpenConnection) -> Value {
    json!({
        "address": connection.address,
        "age_ms": connection.age_ms,
        "buffered_bytes": connection.buffered_bytes,
        "bytes_read": connection.bytes_read,
        "bytes_written": connection.bytes_written,
        "calls_in_flight": connection.calls_in_flight,
        "credential": connection.credential,
        "id": connection.id,
        "idle_ms": connection.idle_ms,
        "user_agent": connection.user_agent,
    })
}

pub(super) fn connections(connections: &[OpenConnection]) -> String {
    let columns = [
        ("id", true),
        ("address", false),
        ("credential", false),
        ("client", false),
        ("calls", true),
        ("read", true),
        ("written", true),
        ("buffered", true),
        ("age", true),
        ("idle", true),
    ];
    let row = |one: &OpenConnection| {
        [
            one.id.to_string(),
            one.address.clone(),
            one.credential.clone(),
            one.user_agent.chars().take(40).collect(),
            one.calls_in_flight.to_string(),
            bytes(one.bytes_read),
            bytes(one.bytes_written),
            bytes(one.buffered_bytes),
            time(one.age_ms),
            time(one.idle_ms),
        ]
    };
    table::render(columns, connections.iter().map(row))
}

/// A number of bytes in its largest unit.
fn bytes(count: u64) -> String {
    let unit =
        |(bits, unit): (u32, &str)| format!("{}.{} {unit}", count >> bits, ((count >> (bits - 10)) & 1023) * 10 / 1024);
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    units.into_iter().find(|(bits, _)| count >> bits > 0).map_or_else(|| format!("{count} B"), unit)
}

/// A time in its two largest units.
fn time(ms: u64) -> String {
    let whole = humantime::format_duration(Duration::from_secs(ms / 1000)).to_string();
    whole.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_times_are_shown_in_their_largest_units() {
        let shown = [0, 1023, 1024, 1536, 5 << 20, (1 << 40) + (1 << 39)].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "1.5 TiB"]);
        assert_eq!([999, 61_000, 90_061_000].map(time), ["0s", "1m 1s", "1day 1h"]);
    }
}
