//! Map keys on the wire, sorted and compared.

use super::error::Error;
use super::number::{low, wanted};
use super::schema::Kind;
use crate::wire::{Fields, Value};

/// A map key for comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key<'a> {
    Number(u64),
    Text(&'a [u8]),
}

impl<'a> Key<'a> {
    pub(super) fn of(kind: Kind, entry: &'a [u8]) -> Result<Self, Error> {
        let mut key = if kind == Kind::String { Self::Text(&[]) } else { Self::Number(0) };
        for field in Fields::of(entry) {
            if let (1, value) = field? {
                key = match (value, kind) {
                    (Value::Bytes(text), Kind::String) => Self::Text(text),
                    (Value::Eight(number), Kind::Fixed64 | Kind::Sfixed64)
                    | (Value::Number(number), Kind::Int64 | Kind::Uint64 | Kind::Sint64) => Self::Number(number),
                    (Value::Four(number), Kind::Fixed32 | Kind::Sfixed32) => Self::Number(u64::from(number)),
                    (Value::Number(number), Kind::Bool) => Self::Number(u64::from(number != 0)),
                    (Value::Number(number), _) if kind.is_half() => Self::Number(u64::from(low(number))),
                    _ => return Err(Error::wrong_type(wanted(kind))),
                };
            }
        }
        Ok(key)
    }

    pub(super) fn value(self, kind: Kind) -> Value<'a> {
        match (self, kind) {
            (Self::Text(text), _) => Value::Bytes(text),
            (Self::Number(number), Kind::Fixed64 | Kind::Sfixed64) => Value::Eight(number),
            (Self::Number(number), Kind::Fixed32 | Kind::Sfixed32) => Value::Four(low(number)),
            (Self::Number(number), _) => Value::Number(number),
        }
    }
}
