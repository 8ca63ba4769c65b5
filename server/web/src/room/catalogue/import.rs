//! Import of a CSV file: a preview of what would change, and its confirmation.

use std::time::Instant;

use axum::{extract::State, http::StatusCode, response::Response};
use bookstore::{domain::NewBook, exchange::Report};

use crate::room::{
    door::Sent,
    operator::Operator,
    state::{Room, respond},
    upload::Upload,
    views::{BadRowLine, ChangeLine, ImportPage, Plan},
};
use crate::{locale::Locale, visit::Visit};

pub(crate) async fn form(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let frame = room.frame(&visit, &operator, "/admin/catalogue");
    respond(StatusCode::OK, &ImportPage { frame, plan: None, fault: None })
}

/// Shows what an import would do.
pub(crate) async fn preview(
    State(room): State<Room>,
    visit: Visit,
    operator: Operator,
    Upload(file): Upload,
) -> Response {
    let frame = room.frame(&visit, &operator, "/admin/catalogue");
    let page = match room.store().plan_import(file.to_vec(), operator.client(&visit)).await {
        Ok(report) => {
            let is_any = report.added + report.changed > 0;
            let key =
                if is_any { room.waiting().keep(operator.client(&visit), file, Instant::now()) } else { String::new() };
            ImportPage { frame, plan: Some(plan(&report, key, visit.locale)), fault: None }
        }
        Err(fault) => ImportPage { frame, plan: None, fault: Some(format!("{fault}.")) },
    };
    respond(StatusCode::OK, &page)
}

fn plan(report: &Report, key: String, locale: Locale) -> Plan {
    let bad = report.bad.iter().map(|row| BadRowLine {
        line: locale.count(row.line),
        column: row.column,
        reason: row.reason.clone(),
    });
    Plan {
        key,
        added: locale.count(report.added),
        changed: locale.count(report.changed),
        unchanged: locale.count(report.unchanged),
        refused: locale.count(report.refused),
        bad: bad.collect(),
        changes: report.changes.iter().map(|(before, after)| change(before, after, locale)).collect(),
    }
}

fn change(before: &NewBook, after: &NewBook, locale: Locale) -> ChangeLine {
    let differing =
        |before: String, after: String| if before == after { (String::new(), after) } else { (before, after) };
    let listed = |book: &NewBook| if book.listed { String::new() } else { "delisted".to_owned() };
    ChangeLine {
        id: after.id,
        title: differing(before.title.clone(), after.title.clone()),
        topic: differing(before.topic.clone(), after.topic.clone()),
        stock: differing(locale.count(before.stock), locale.count(after.stock)),
        price: differing(locale.price(before.price), locale.price(after.price)),
        listed: differing(listed(before), listed(after)),
    }
}

/// Imports a file whose preview was shown.
pub(crate) async fn apply(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let (store, plan) = (room.store().clone(), sent.field("plan").to_owned());
    let (actor, client) = (operator.actor(), operator.client(&visit));
    let room_of_file = room.clone();
    let work = Box::pin(async move {
        let file = room_of_file.waiting().get(&plan, Instant::now());
        let file = file.ok_or("The file is no longer here. Send it again.")?;
        let report = store.apply_import(file.to_vec(), actor, client).await?;
        room_of_file.waiting().forget(&plan);
        let Report { added, changed, unchanged, refused, .. } = report;
        Ok(format!("Imported: {added} added, {changed} changed, {unchanged} unchanged, {refused} left out."))
    });
    room.act(&visit, &operator, sent.once(), ("import".to_owned(), "/admin/catalogue"), work).await
}
