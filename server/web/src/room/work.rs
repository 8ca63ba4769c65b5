//! Games and tasks: current ones, counts since the start, and the last results.

use axum::{extract::State, http::StatusCode, response::Response};
use humantime::format_rfc3339_seconds;

use super::{
    operator::Operator,
    state::{Room, respond},
    views::{AnsweredRow, Figure, GameRow, TaskRow, WorkPage},
};
use crate::visit::Visit;

pub(crate) async fn work(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let locale = visit.locale;
    let figure = |name, value: u64| Figure { name, value: locale.count(value) };
    let whole = |number: i64| u64::try_from(number).unwrap_or_default();
    let games = room.services().games.as_ref().map(|games| {
        vec![
            figure("Games now", games.count() as u64),
            figure("Games ended", *games.ended().borrow()),
            figure("Bytes of early messages", games.waiting_bytes() as u64),
            figure("Lean connections", games.counts().lean_connections()),
            figure("Lean messages", games.counts().lean_messages()),
        ]
    });
    let refused = room.services().games.as_ref().map(|games| {
        let happened = games.counts().refusals().filter(|(_, count)| *count > 0);
        happened.map(|(reason, count)| (reason, locale.count(count))).collect()
    });
    let levels = room.services().tasks.as_ref().map(tasks::Metrics::levels);
    let tasks = levels.as_ref().map(|levels| {
        vec![
            figure("Tasks in flight", whole(levels.in_flight)),
            figure("CPU tasks now", levels.cpu_running),
            figure("CPU tasks at most", levels.cpu_running_peak),
            figure("Connections", whole(levels.connections)),
        ]
    });
    let requests = levels.map(|levels| levels.requests).unwrap_or_default();
    let of_one = |chunk: &[(&'static str, &'static str, u64)]| TaskRow {
        kind: chunk[0].0,
        counts: chunk.iter().map(|(.., count)| locale.count(*count)).collect(),
    };
    let mut outcomes: Vec<&'static str> = requests.iter().map(|(_, outcome, _)| *outcome).collect();
    let rows: Vec<TaskRow> = requests.chunk_by(|one, next| one.0 == next.0).map(of_one).collect();
    outcomes.truncate(rows.first().map_or(0, |row| row.counts.len()));
    let games_ended = room.services().games.as_ref().map(rpcgame::Games::recent).unwrap_or_default();
    let games_ended = games_ended.into_iter().map(|game| GameRow {
        time: format_rfc3339_seconds(game.at).to_string(),
        group: game.group.into(),
        messages: locale.count(game.messages),
        client: format!("{:016x}", game.sums.client),
        server: format!("{:016x}", game.sums.server),
    });
    let games_ended = games_ended.collect();
    let answered = room.services().tasks.as_ref().map(tasks::Metrics::recent).unwrap_or_default();
    let answered = answered.into_iter().map(|task| AnsweredRow {
        time: format_rfc3339_seconds(task.at).to_string(),
        kind: task.kind,
        seed: task.seed.to_string(),
        result: task.result,
        outcome: task.outcome,
    });
    let answered = answered.collect();
    let page = WorkPage {
        frame: room.frame(&visit, &operator, "/admin/work"),
        games,
        refusals: refused.unwrap_or_default(),
        tasks,
        outcomes,
        requests: rows,
        games_ended,
        answered,
    };
    respond(StatusCode::OK, &page)
}
