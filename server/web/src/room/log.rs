//! The transaction log, newest first.

use axum::{extract::State, http::StatusCode, response::Response};
use bookstore::store::Page;

use super::{
    entries,
    operator::Operator,
    parts::LogPart,
    state::{Room, respond},
    views::LogPage,
};
use crate::{
    request::query,
    visit::{Visit, rendered},
};

/// Entries on a page.
const PAGE_ENTRIES: usize = 50;

pub(crate) async fn log(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let before = query(&visit.uri, "before").and_then(|text| text.parse().ok()).filter(|number: &i64| *number > 0);
    let (store, asked) = (room.store(), Page::Before(before.unwrap_or(i64::MAX)));
    let page = match store.log(asked, PAGE_ENTRIES).await {
        Ok(page) => Ok(page),
        // A lower limit on pages.
        Err(_) => store.log(asked, 0).await,
    };
    let page = match page {
        Ok(page) => page,
        Err(fault) => return room.failed(&visit, &operator, &fault),
    };
    let titled = entries::titled(store, page.items).await;
    let log = LogPage {
        frame: room.frame(&visit, &operator, "/admin/log"),
        log: rendered(&LogPart { rows: entries::rows(&titled, visit.locale) }).unwrap_or_default(),
        entries: visit.locale.count(store.levels().log_number),
        first: before.is_some().then(|| "/admin/log".to_owned()),
        next: page.next.map(|number| format!("/admin/log?before={number}")),
    };
    respond(StatusCode::OK, &log)
}
