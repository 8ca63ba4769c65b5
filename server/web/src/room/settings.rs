//! Settings with their sources.

use axum::{extract::State, http::StatusCode, response::Response};

use operate::Reloaded;

use super::{
    door::Sent,
    operator::Operator,
    state::{Room, respond},
    views::{Piece, SettingRow, SettingsPage},
};
use crate::{request::query, visit::Visit};

pub(crate) async fn settings(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let is_short = query(&visit.uri, "given").is_some();
    let all = room.services().settings.now();
    let (mut sections, mut given): (Vec<(String, Vec<SettingRow>)>, usize) = (Vec::new(), 0);
    for setting in all.iter() {
        let is_default = setting.source == "default";
        given += usize::from(!is_default);
        if is_short && is_default {
            continue;
        }
        let section = setting.key.split('.').next().unwrap_or_default();
        if sections.last().is_none_or(|(last, _)| last != section) {
            sections.push((section.to_owned(), Vec::new()));
        }
        let row = SettingRow {
            key: setting.key,
            value: setting.value.as_deref().map(|value| value.trim_matches('"').to_owned()),
            source: setting.source.clone(),
            is_default,
            is_reloaded: setting.is_reloaded,
            meaning: pieces(setting.meaning),
            kind: pieces(&setting.kind),
        };
        if let Some((_, rows)) = sections.last_mut() {
            rows.push(row);
        }
    }
    let frame = room.frame(&visit, &operator, "/admin/settings");
    respond(StatusCode::OK, &SettingsPage { frame, sections, given, all: all.len(), is_short })
}

/// Reads settings and files again.
pub(crate) async fn reload(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let (operate, by) = (room.services().operate.clone(), operator.actor());
    let work = Box::pin(async move {
        let Reloaded { applied, waiting } = operate.reload(by.as_str()).await.map_err(|error| format!("{error}."))?;
        let holding = |settings: Vec<String>, holds| match settings.as_slice() {
            [] => String::new(),
            settings => format!(" {} hold {holds}.", settings.join(", ")),
        };
        let (now, later) = (holding(applied, "from now on"), holding(waiting, "from the next start on"));
        Ok(format!("The settings are read; the log shows the outcome of the other files.{now}{later}"))
    });
    room.act(&visit, &operator, sent.once(), ("reload".to_owned(), "/admin/settings"), work).await
}

/// A line of Markdown as text and code; of a link its text.
fn pieces(markdown: &str) -> Vec<Piece> {
    let mut plain = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        if let Some((text, end)) = after.split_once("](").and_then(|(text, end)| Some((text, end.split_once(')')?.1))) {
            plain.push_str(text);
            rest = end;
        } else {
            plain.push('[');
            rest = after;
        }
    }
    plain.push_str(rest);
    let parts = plain.split('`').enumerate().filter(|(_, text)| !text.is_empty());
    parts.map(|(place, text)| Piece { is_code: place % 2 == 1, text: text.to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn markdown_becomes_text_and_code() {
        let shown = |line: &str| {
            let shown = |piece: super::Piece| if piece.is_code { format!("<{}>", piece.text) } else { piece.text };
            pieces(line).into_iter().map(shown).collect::<String>()
        };
        assert_eq!(shown("`false`: without it ([page.md](page.md#part))"), "<false>: without it (page.md)");
        assert_eq!(shown("a [list] of `x`"), "a [list] of <x>");
        assert_eq!(shown("plain"), "plain");
    }
}
