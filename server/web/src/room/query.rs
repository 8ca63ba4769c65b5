//! Queries of records: a box with the columns, and the answer as a table.

use std::time::Instant;

use axum::{extract::State, http::StatusCode, response::Response};
use records::{Query, Rows};

use super::{
    operator::Operator,
    state::{Room, respond},
    views::{RecordsAnswer, RecordsPage},
};
use crate::{
    locale::Locale,
    request::{encoded, query},
    visit::Visit,
};

/// Rows on a page, and characters of a value.
const PAGE_ROWS: u64 = 50;
const VALUE_CHARS_MAX: usize = 240;

pub(crate) async fn query_box(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let Some(records) = room.services().records.clone() else {
        return room.sorry(&visit, &operator, StatusCode::NOT_FOUND, "There are no records", OFF.to_owned());
    };
    let columns = records.names().unwrap_or_default();
    let asked = query(&visit.uri, "column");
    let value = query(&visit.uri, "value").unwrap_or_default();
    let offset = query(&visit.uri, "offset").and_then(|text| text.parse().ok()).unwrap_or(0);
    let answer = match &asked {
        None => None,
        Some(column) => {
            let (column, value) = (column.clone(), value.clone());
            let began = Instant::now();
            let sent = Query { column, value, offset, limit: Some(PAGE_ROWS), ..Query::default() };
            let rows = records.rows(sent.clone()).await;
            let time = began.elapsed();
            Some(rows.map(|rows| shown(rows, &sent, time, visit.locale)).map_err(|fault| fault.to_string()))
        }
    };
    let page = RecordsPage {
        frame: room.frame(&visit, &operator, "/admin/records"),
        column: asked.or_else(|| columns.first().cloned()).unwrap_or_default(),
        columns,
        rows_all: visit.locale.count(records.levels().rows),
        value,
        answer,
    };
    respond(StatusCode::OK, &page)
}

/// Advice on a server without the service.
const OFF: &str = "This server runs without records. Start it with records.enabled=true.";

fn shown(rows: Rows, asked: &Query, time: std::time::Duration, locale: Locale) -> RecordsAnswer {
    let count = rows.rows.len() as u64;
    let path = |offset: u64| {
        format!("/admin/records?column={}&value={}&offset={offset}", encoded(&asked.column), encoded(&asked.value))
    };
    let end = asked.offset.saturating_add(count);
    let cut = |value: String| match value.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value,
    };
    RecordsAnswer {
        range: format!("{} to {}", locale.count(asked.offset.saturating_add(u64::from(count > 0))), locale.count(end)),
        matching: locale.count(rows.matching as u64),
        time: format!("{} µs", locale.count(time.as_micros())),
        previous: (asked.offset > 0).then(|| path(asked.offset.saturating_sub(PAGE_ROWS))),
        next: (end < rows.matching as u64).then(|| path(end)),
        columns: rows.columns,
        rows: rows.rows.into_iter().map(|row| row.into_iter().map(cut).collect()).collect(),
    }
}
