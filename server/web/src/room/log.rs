//! The transaction log, newest first, filtered by time, book and kind.

use std::time::UNIX_EPOCH;

use axum::{extract::State, http::StatusCode, response::Response};
use bookstore::{
    BookId,
    domain::{EntryKind, LogFilter},
};

use super::{
    entries,
    operator::Operator,
    parts::LogPart,
    state::{Room, respond},
    views::{KindChoice, LogPage},
};
use crate::{
    request::{encoded, query},
    visit::{Visit, rendered},
};

/// A time that a form sends, in UTC, as milliseconds since 1970.
pub(crate) fn time_ms(text: &str) -> Option<i64> {
    let whole = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        16 => format!("{text}:00Z"),
        19 => format!("{text}Z"),
        _ => return None,
    };
    let since = humantime::parse_rfc3339(&whole).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

/// The filter in a query; what is empty or cannot be read chooses all.
pub(crate) fn filter(visit: &Visit) -> LogFilter {
    let field = |name| query(&visit.uri, name).unwrap_or_default();
    let kind = EntryKind::ALL.into_iter().find(|kind| kind.name() == field("kind"));
    LogFilter {
        from_ms: time_ms(&field("from")),
        to_ms: time_ms(&field("to")),
        book: BookId::parse(&field("book")).ok(),
        kinds: kind.into_iter().collect(),
    }
}

pub(crate) async fn log(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let before = query(&visit.uri, "before").and_then(|text| text.parse().ok()).filter(|number: &i64| *number > 0);
    let filter = filter(&visit);
    let found = match entries::page(room.store(), before.unwrap_or(i64::MAX), &filter, entries::PAGE_ENTRIES).await {
        Ok(found) => found,
        Err(fault) => return room.failed(&visit, &operator, &fault),
    };
    let titled = entries::titled(room.store(), found.items).await;
    let chosen = |name: &str| query(&visit.uri, name).unwrap_or_default();
    let fields = ["from", "to", "book", "kind"].map(|name| (name, chosen(name)));
    let kept = fields.iter().filter(|(_, value)| !value.is_empty());
    let filters = kept.fold(String::new(), |filters, (name, value)| filters + "&" + name + "=" + &encoded(value));
    let kind = chosen("kind");
    let kinds = EntryKind::ALL.map(|each| KindChoice { name: each.name(), is_chosen: each.name() == kind });
    let [from, to, book, _] = fields.map(|(_, value)| value);
    let page = LogPage {
        frame: room.frame(&visit, &operator, "/admin/log"),
        log: rendered(&LogPart { rows: entries::rows(&titled, visit.locale), is_more: found.next.is_some() })
            .unwrap_or_default(),
        entries: visit.locale.count(room.store().levels().log_number),
        is_live: before.is_none(),
        from,
        to,
        book,
        kinds: kinds.to_vec(),
        is_filtered: !filters.is_empty(),
        csv: format!("/admin/log/export?as=csv{filters}"),
        json: format!("/admin/log/export?as=json{filters}"),
        first: before.is_some().then(|| format!("/admin/log?{}", filters.trim_start_matches('&'))),
        next: found.next.map(|number| format!("/admin/log?before={number}{filters}")),
    };
    respond(StatusCode::OK, &page)
}

#[cfg(test)]
mod tests {
    use super::time_ms;

    #[test]
    fn times_of_forms_are_in_utc() {
        for (text, ms) in [
            ("1970-01-02", Some(86_400_000)),
            ("1970-01-01T00:01", Some(60_000)),
            ("1970-01-01T00:00:01", Some(1_000)),
            ("", None),
            ("yesterday!", None),
            ("2026-13-01", None),
        ] {
            assert_eq!(time_ms(text), ms, "{text}");
        }
    }
}
