//! Converts single JSON values to wire values.

use std::borrow::Cow;

use super::error::{Error, shown};
use super::number::{float_word, parse_float, parse_whole, varint_of, wanted};
use super::scan::Scanner;
use super::schema::{Kind, Schema};
use crate::wire::Value;

/// A number, a boolean or an enum value; None for an unknown enum name.
#[inline]
pub(super) fn scalar(schema: &Schema, kind: Kind, scan: &mut Scanner<'_>) -> Result<Option<Value<'static>>, Error> {
    let next = scan.peek();
    let start = *scan;
    let value = match kind {
        Kind::Bool if scan.take_exact("true") => Some(Value::Number(1)),
        Kind::Bool if scan.take_exact("false") => Some(Value::Number(0)),
        Kind::Null if scan.take_exact("null") || scan.take_exact("\"NULL_VALUE\"") || scan.take_exact("0") => {
            Some(Value::Number(0))
        }
        Kind::Bool | Kind::Null => None,
        Kind::Enum(id) if next == Some(b'"') => {
            let number = schema.enumeration(id).number(&scan.string()?.decode()?);
            return Ok(number.map(|number| Value::Number(varint_of(number))));
        }
        _ if next == Some(b'"') => quoted(kind, &scan.string()?.decode()?),
        _ => number(kind, scan.number(wanted(kind))?),
    };
    if value.is_none() {
        *scan = start;
        return Err(scan.expected(wanted(kind)));
    }
    Ok(value)
}

#[inline]
fn number(kind: Kind, text: &str) -> Option<Value<'static>> {
    if matches!(kind, Kind::Float | Kind::Double) { parse_float(kind, text) } else { parse_whole(kind, text) }
}

/// A quoted number, without white space.
fn quoted(kind: Kind, text: &str) -> Option<Value<'static>> {
    if matches!(kind, Kind::Float | Kind::Double)
        && let Some(value) = float_word(kind, text)
    {
        return Some(value);
    }
    let found = Scanner::new(text).number("").ok()?;
    if found.len() == text.len() { number(kind, found) } else { None }
}

/// A map key, which JSON always quotes.
pub(super) fn key(kind: Kind, text: &str) -> Result<Value<'_>, Error> {
    let value = match kind {
        Kind::String => Some(Value::Bytes(text.as_bytes())),
        Kind::Bool if text == "true" => Some(Value::Number(1)),
        Kind::Bool if text == "false" => Some(Value::Number(0)),
        Kind::Bool => None,
        _ => quoted(kind, text),
    };
    value.ok_or_else(|| Error::new(format!("a key must be {}, in quotes; found \"{}\"", wanted(kind), shown(text))))
}

#[inline]
pub(super) fn string<'a>(scan: &mut Scanner<'a>, wanted: &str) -> Result<Cow<'a, str>, Error> {
    if scan.peek() != Some(b'"') {
        return Err(scan.expected(wanted));
    }
    scan.string()?.decode()
}
