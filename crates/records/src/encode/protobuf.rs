//! Rows as field 1 of `ReaderResponse`. Must agree to the byte with what prost makes of the same message.

use prost::encoding::{encode_varint, encoded_len_varint};

/// Field 1, length-delimited: `records`, `fields` and `key` alike.
const FIRST: u8 = 1 << 3 | 2;
/// Field 2, length-delimited: `value`.
const SECOND: u8 = 2 << 3 | 2;

/// Each column's `key`, encoded.
#[derive(Debug)]
pub(super) struct Rows(Vec<Box<[u8]>>);

fn value_len(value: &str) -> usize {
    if value.is_empty() { 0 } else { delimited_len(value.len()) }
}

/// With its tag and its length.
fn delimited_len(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

fn put_length(tag: u8, length: usize, out: &mut Vec<u8>) {
    out.push(tag);
    // Lengths below 128 are their own varints, and nearly all are.
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => encode_varint(length as u64, out),
    }
}

impl Rows {
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let key = |name: &str| {
            let mut key = Vec::new();
            put_length(FIRST, name.len(), &mut key);
            key.extend_from_slice(name.as_bytes());
            key.into()
        };
        Self(names.map(key).collect())
    }

    pub(super) fn row<'a>(&self, values: impl Iterator<Item = &'a str> + Clone, out: &mut Vec<u8>) {
        let fields = self.0.iter().zip(values);
        let length = fields.clone().map(|(key, value)| delimited_len(key.len() + value_len(value))).sum();
        put_length(FIRST, length, out);
        for (key, value) in fields {
            put_length(FIRST, key.len() + value_len(value), out);
            out.extend_from_slice(key);
            if !value.is_empty() {
                put_length(SECOND, value.len(), out);
                out.extend_from_slice(value.as_bytes());
            }
        }
    }
}
