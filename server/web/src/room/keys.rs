//! Key-value entries: a list by prefix, and an entry that is edited by compare-and-set.

use std::{fmt::Write as _, ops::ControlFlow, time::Duration};

use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use kv::{Entry, KeyValue, Scan, Value, Version};

use super::{
    door::Sent,
    figures::in_words,
    operator::Operator,
    state::{Room, forged, respond},
    views::{KeyPage, KeyRow, KeysPage, Shape},
};
use crate::{
    request::{encoded, query},
    visit::Visit,
};

/// Entries on a page, and characters of a value there.
const PAGE_ENTRIES: usize = 50;
const BEGIN_CHARS_MAX: usize = 60;

/// Bytes of a value that are shown, and that can be edited in a page.
const SHOWN_BYTES_MAX: usize = 64 << 10;

/// Advice on a server without the service.
const OFF: (&str, &str) =
    ("There are no keys", "This server runs without the key-value service. Start it with kv.enabled=true.");

/// A key as text; in hexadecimal if it is not text.
fn name(key: &[u8]) -> String {
    match str::from_utf8(key) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("0x{}", hex(key)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of hexadecimal digits; blanks between them do not count.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    });
    pairs.collect()
}

fn entry_path(key: &[u8]) -> String {
    match str::from_utf8(key) {
        Ok(text) => format!("/admin/keys/entry?key={}", encoded(text)),
        Err(_) => format!("/admin/keys/entry?hex={}", hex(key)),
    }
}

/// The key in a query: as text, or in hexadecimal.
fn key_of(uri: &Uri) -> Option<Vec<u8>> {
    match query(uri, "hex") {
        Some(digits) => unhex(&digits),
        None => query(uri, "key").map(String::into_bytes),
    }
}

/// The time to an expiry, in the largest unit that fits.
fn left(entry: &Entry, now_ms: u64) -> Option<Duration> {
    entry.expires_at_ms.map(|at| Duration::from_millis(at.get().saturating_sub(now_ms)))
}

/// The beginning of a value, on one line.
fn begin(value: &[u8]) -> String {
    let Ok(text) = str::from_utf8(&value[..value.len().min(BEGIN_CHARS_MAX * 4)]).or_else(|error| {
        // A character that was cut in two is no reason to show digits.
        let whole = error.valid_up_to();
        if error.error_len().is_none() { str::from_utf8(&value[..whole]) } else { Err(error) }
    }) else {
        return format!("0x{}", hex(&value[..value.len().min(BEGIN_CHARS_MAX / 2)]));
    };
    let plain: String =
        text.chars().take(BEGIN_CHARS_MAX).map(|sign| if sign.is_control() { ' ' } else { sign }).collect();
    if plain.len() < value.len() { plain + "…" } else { plain }
}

pub(crate) async fn keys(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let Some(kv) = room.services().kv.clone() else {
        return room.sorry(&visit, &operator, StatusCode::NOT_FOUND, OFF.0, OFF.1.to_owned());
    };
    let prefix = query(&visit.uri, "prefix").unwrap_or_default();
    let after = query(&visit.uri, "after").and_then(|digits| unhex(&digits));
    let entries = PAGE_ENTRIES.min(kv.limits().page_entries);
    let (mut rows, now_ms, locale) = (Vec::new(), kv.now_ms(), visit.locale);
    let scan = Scan { prefix: prefix.as_bytes(), start_after: after.as_deref(), entries, keys_only: false };
    let scanned = kv.scan(&scan, |key, entry| {
        rows.push(KeyRow {
            path: entry_path(key),
            name: name(key),
            bytes: locale.count(entry.value.bytes().len() as u64),
            version: entry.version.0,
            left: left(entry, now_ms).map(in_words).unwrap_or_default(),
            begin: begin(entry.value.bytes()),
        });
        ControlFlow::Continue(())
    });
    let list = |after: &str| format!("/admin/keys?prefix={}{after}", encoded(&prefix));
    let (next, fault) = match scanned.await {
        Ok(next) => (next.map(|key| list(&format!("&after={}", hex(&key)))), None),
        Err(fault) => (None, Some(format!("{fault}."))),
    };
    let levels = kv.levels();
    let page = KeysPage {
        frame: room.frame(&visit, &operator, "/admin/keys"),
        rows,
        entries: locale.count(levels.entries as u64),
        bytes: locale.bytes(levels.bytes as u64),
        first: after.is_some().then(|| list("")),
        next,
        fault,
        prefix,
    };
    respond(StatusCode::OK, &page)
}

pub(crate) async fn entry(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let Some(kv) = room.services().kv.clone() else {
        return room.sorry(&visit, &operator, StatusCode::NOT_FOUND, OFF.0, OFF.1.to_owned());
    };
    let Some(key) = key_of(&visit.uri) else {
        let text = "The address has to name a key, as key=TEXT or hex=DIGITS.".to_owned();
        return room.sorry(&visit, &operator, StatusCode::NOT_FOUND, "There is no such key", text);
    };
    let found = match kv.retrieve(&key).await {
        Ok(found) => found,
        Err(fault) => {
            let text = format!("{}: {fault}. It may have expired, or been deleted by another client.", name(&key));
            return room.sorry(&visit, &operator, StatusCode::NOT_FOUND, "There is no such key", text);
        }
    };
    let page = key_page(&room, &visit, &operator, &kv, &key, &found);
    respond(StatusCode::OK, &page)
}

fn key_page(room: &Room, visit: &Visit, operator: &Operator, kv: &KeyValue, key: &[u8], found: &Entry) -> KeyPage {
    let value = found.value.bytes();
    // A text area turns every end of a line into one form, and so would change other ones.
    let text =
        str::from_utf8(value).ok().filter(|text| !text.chars().any(|sign| sign.is_control() && !"\n\t".contains(sign)));
    let json = text.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    let usual = match (&json, text) {
        (Some(serde_json::Value::Object(_) | serde_json::Value::Array(_)), _) => Shape::Json,
        (_, Some(_)) => Shape::Text,
        _ => Shape::Hex,
    };
    let is_possible = |shape: Shape| match shape {
        Shape::Text => text.is_some(),
        Shape::Json => json.is_some(),
        Shape::Hex => true,
    };
    let asked = query(&visit.uri, "as");
    let asked = Shape::ALL.into_iter().find(|shape| Some(shape.name()) == asked.as_deref() && is_possible(*shape));
    let shape = asked.unwrap_or(usual);
    let is_cut = value.len() > SHOWN_BYTES_MAX;
    let part = &value[..value.len().min(SHOWN_BYTES_MAX)];
    let shown = match (shape, &json) {
        (Shape::Json, Some(json)) if !is_cut => serde_json::to_string_pretty(json).unwrap_or_default(),
        (Shape::Hex, _) => rows_of_hex(part),
        _ => String::from_utf8_lossy(part).into_owned(),
    };
    let edited = match shape {
        _ if is_cut => None,
        Shape::Hex => Some(hex(value)),
        Shape::Text | Shape::Json => text.map(str::to_owned),
    };
    let left = left(found, kv.now_ms());
    let path = entry_path(key);
    let possible = Shape::ALL.into_iter().filter(|shape| is_possible(*shape));
    KeyPage {
        frame: room.frame(visit, operator, "/admin/keys"),
        name: name(key),
        key: hex(key),
        bytes: visit.locale.count(value.len() as u64),
        version: found.version.0,
        left: left.map(in_words).unwrap_or_default(),
        seconds: left.map(|left| left.as_secs().max(1).to_string()).unwrap_or_default(),
        shape,
        shapes: possible.map(|shape| (shape, format!("{path}&as={}", shape.name()))).collect(),
        shown,
        is_cut,
        edited,
        back: "/admin/keys".to_owned(),
    }
}

/// Sixteen bytes a line, with their place and their text.
fn rows_of_hex(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len() * 5);
    for (place, row) in bytes.chunks(16).enumerate() {
        let digits: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = row
            .iter()
            .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' })
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(shown, "{:06x}  {:<47}  {text}", place * 16, digits.join(" "));
    }
    shown
}

/// The value and the time to live of a form; the error is a sentence.
fn fields(sent: &Sent) -> Result<(Value, Option<Duration>), String> {
    let value = if sent.field("as") == Shape::Hex.name() {
        unhex(sent.field("value")).ok_or("The value is not pairs of hexadecimal digits. Nothing was written.")?
    } else {
        sent.field("value").replace("\r\n", "\n").into_bytes()
    };
    let seconds = sent.field("seconds").trim();
    let time_to_live = match seconds {
        "" => None,
        _ => Some(seconds.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(|| {
            "The time left is a whole number of seconds, or empty for no end. Nothing was written.".to_owned()
        })?),
    };
    Ok((Value::copied(&value), time_to_live))
}

/// Creates an entry.
pub(crate) async fn create(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let Some(kv) = room.services().kv.clone() else {
        return room.sorry(&visit, &operator, StatusCode::NOT_FOUND, OFF.0, OFF.1.to_owned());
    };
    let key = sent.field("key").as_bytes().to_vec();
    let (action, written) = (format!("kv create {}", name(&key)), fields(&sent));
    let back = if written.is_ok() { entry_path(&key) } else { "/admin/keys".to_owned() };
    let work = Box::pin(async move {
        let (value, time_to_live) = written?;
        if key.is_empty() {
            return Err("A key has at least one byte. Nothing was written.".into());
        }
        let version = kv.create(&key, value, time_to_live).await?;
        Ok(format!("“{}” is written, with version {version}.", name(&key)))
    });
    room.act(&visit, &operator, sent.once(), (action, &back), work).await
}

/// Writes or removes an entry, if it has the version that the form was made for.
pub(crate) async fn change(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let Some(kv) = room.services().kv.clone() else {
        return room.sorry(&visit, &operator, StatusCode::NOT_FOUND, OFF.0, OFF.1.to_owned());
    };
    let version = sent.field("version").parse().map(Version).ok();
    let (Some(key), Some(version)) = (unhex(sent.field("key")), version) else { return forged() };
    let is_removal = sent.field("what") == "delete";
    let action = format!("kv {} {}", if is_removal { "delete" } else { "update" }, name(&key));
    let back = if is_removal { "/admin/keys".to_owned() } else { entry_path(&key) };
    let written = fields(&sent);
    let work = Box::pin(async move {
        if is_removal {
            let existed = kv.delete(&key, Some(version)).await?;
            let done = if existed { "is deleted" } else { "was gone already" };
            return Ok(format!("“{}” {done}.", name(&key)));
        }
        let (value, time_to_live) = written?;
        let version = kv.update(&key, value, Some(version), time_to_live).await?;
        Ok(format!("“{}” is written, with version {version}.", name(&key)))
    });
    room.act(&visit, &operator, sent.once(), (action, &back), work).await
}

#[cfg(test)]
mod tests {
    use super::{begin, hex, name, rows_of_hex, unhex};

    #[test]
    fn bytes_are_shown_as_text_or_digits_and_read_back() {
        assert_eq!((name(b"user/7"), name(b"\xff\x00")), ("user/7".to_owned(), "0xff00".to_owned()));
        assert_eq!(unhex(&hex(b"\x00a\xff")), Some(b"\x00a\xff".to_vec()));
        assert_eq!((unhex("0 1\n02"), unhex("0"), unhex("xx")), (Some(vec![1, 2]), None, None));
        assert_eq!(begin("ü".repeat(200).as_bytes()), "ü".repeat(60) + "…");
        assert_eq!((begin(b"one\ntwo"), begin(b"\xff")), ("one two".to_owned(), "0xff".to_owned()));
        assert_eq!(rows_of_hex(b"AB\n"), format!("000000  {:<47}  AB.\n", "41 42 0a"));
    }
}
