//! Backups: the age of the newest one, and one to keep.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use operate::Making;

use super::{
    door::Sent,
    entries::timestamp,
    figures::in_words,
    operator::Operator,
    state::{Room, respond},
    views::BackupsPage,
};
use crate::visit::Visit;

pub(crate) async fn backups(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let age = room.services().operate.newest().borrow().backup_age;
    let frame = room.frame(&visit, &operator, "/admin/backups");
    respond(StatusCode::OK, &BackupsPage { frame, age: age.map(in_words) })
}

/// Makes a backup, which the browser keeps.
pub(crate) async fn make(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let (operate, client) = (room.services().operate.clone(), operator.client(&visit));
    let making = || -> Making {
        operator.log(&visit, "backup");
        Box::pin(async move { operate.backup(client).await })
    };
    let pieces = match room.backups().click(sent.once()).pieces(making).await {
        Ok(Some(pieces)) => pieces,
        Ok(None) => {
            let text = "This form has made its backup. Open the page anew for another one.".to_owned();
            return room.sorry(&visit, &operator, StatusCode::CONFLICT, "There is one backup", text);
        }
        Err(error) => {
            let text = format!("{error}.");
            return room.sorry(&visit, &operator, StatusCode::SERVICE_UNAVAILABLE, "There is no backup", text);
        }
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = timestamp(i64::try_from(since.as_millis()).unwrap_or_default()).replace(':', "-");
    file(&format!("quire-{time}.backup"), "application/x-tar", Body::from_stream(pieces))
}

/// A file that the browser keeps.
pub(crate) fn file(name: &str, kind: &'static str, body: Body) -> Response {
    let mut response = ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], body).into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    response
}
