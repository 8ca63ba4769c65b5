//! The first page: is anything lost or refused, is it healthy, how fast is it, what happens.

pub(super) mod figures;
pub(super) mod live;
pub(super) mod moment;
pub(super) mod parts;

use std::time::Instant;

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};

use crate::room::{
    door::Sent,
    log,
    moment::Part,
    operator::Operator,
    state::{Room, forged, respond},
    views::{ErrorsPage, OverviewPage},
};
use crate::{request::query, visit::Visit};

/// Answer to a further stream.
const CROWDED: &str = "too many pages are live; load the page again instead\n";

pub(crate) async fn overview(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let moment = room.live().moment().await;
    let html = |part| moment.html(part, visit.locale);
    let page = OverviewPage {
        frame: room.frame(&visit, &operator, "/admin"),
        lost: html(Part::Lost),
        healthy: html(Part::Healthy),
        sparks: html(Part::Sparks),
        methods: html(Part::Methods),
        recent: html(Part::Recent),
        callers: html(Part::Callers),
    };
    respond(StatusCode::OK, &page)
}

/// The stream of the parts on a page.
pub(crate) async fn live(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let names = query(&visit.uri, "parts").unwrap_or_default();
    let (parts, log) = (Part::list(&names), names.split(',').any(|name| name == "log").then(|| log::filter(&visit)));
    if parts.is_empty() && log.is_none() {
        return (StatusCode::BAD_REQUEST, "name parts, as parts=lost,healthy\n").into_response();
    }
    let (session, kept) = (operator.cookie().cloned(), room.clone());
    let is_open =
        Box::new(move || session.as_ref().is_none_or(|sent| kept.sessions().look_at(sent, Instant::now()).is_some()));
    let client = operator.client(&visit);
    let Some(events) = room.live().open(parts, log, visit.locale, client, is_open) else {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "30")], CROWDED).into_response();
    };
    let fields = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // nginx would keep events back otherwise.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (fields, events).into_response()
}

/// Cuts a connection off.
pub(crate) async fn cut(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let Ok(id) = sent.field("connection").parse::<u64>() else { return forged() };
    let (operate, by) = (room.services().operate.clone(), operator.actor());
    let work = Box::pin(async move {
        if operate.cut(id, by.as_str()) {
            Ok(format!("Connection {id} is cut off."))
        } else {
            Err(format!("Connection {id} was gone already.").into())
        }
    });
    room.act(&visit, &operator, sent.once(), (format!("cut {id}"), "/admin"), work).await
}

/// The gRPC statuses of this server, and what an operator does about them.
const ERRORS: [(&str, &str); 14] = [
    ("Cancelled", "The client went away before the answer."),
    (
        "Unknown",
        "A commit failed in between, so that its outcome is unknown until the file has been read back. A purchase that is sent again with its key gets the answer.",
    ),
    ("InvalidArgument", "The request is malformed: the client has to be mended, and sending it again does not help."),
    (
        "DeadlineExceeded",
        "The client's deadline passed. Nothing was done, unless the method says otherwise. Look at the time of commits and at the queue.",
    ),
    (
        "NotFound",
        "The client asked for something that is not there. Business outcomes such as \u{201c}no such book\u{201d} have the status OK.",
    ),
    ("AlreadyExists", "The client wants to create what is there already. Nothing was changed."),
    ("PermissionDenied", "The credential does not have the scope of the method."),
    (
        "ResourceExhausted",
        "A limit was reached, and nothing was done. The overview names the limit; its setting explains it.",
    ),
    ("FailedPrecondition", "The state does not allow it, such as a version that has changed since it was read."),
    ("Aborted", "The call met another one. The client reads again and decides again."),
    ("Unimplemented", "The server has no such method, or it is turned off."),
    ("Internal", "The store or the server failed, and nothing was done. The log says why."),
    (
        "Unavailable",
        "The store is being read back after a failure, out of reach or locked, or the server stops. Nothing was done; clients try again later.",
    ),
    ("Unauthenticated", "The credential is missing, wrong or revoked."),
];

pub(crate) async fn errors(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    respond(StatusCode::OK, &ErrorsPage { frame: room.frame(&visit, &operator, ""), errors: &ERRORS })
}

#[cfg(test)]
mod tests {
    use quire_rpc::Code;

    use super::ERRORS;

    #[test]
    fn each_status_that_a_service_returns_is_explained() {
        for code in Code::ALL {
            // No service returns the last two.
            let is_shown = !matches!(code, Code::Ok | Code::OutOfRange | Code::DataLoss);
            let name = format!("{code:?}");
            assert_eq!(ERRORS.iter().filter(|(shown, _)| *shown == name).count(), usize::from(is_shown), "{name}");
        }
    }
}
