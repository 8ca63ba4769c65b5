//! Rows as field 1 of `ReaderResponse`. Must agree to the byte with what prost makes of the same message.

use quire_rpc::wire::{bytes_len, delimited_len, put_bytes, put_delimited, put_length};

/// `records`, `fields` and `key` alike.
const FIRST: u8 = 1;
/// `value`.
const SECOND: u8 = 2;

/// Each column's `key`, encoded.
#[derive(Debug)]
pub(super) struct Rows(Vec<Box<[u8]>>);

impl Rows {
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let key = |name: &str| {
            let mut key = Vec::new();
            put_delimited(FIRST, name.as_bytes(), &mut key);
            key.into()
        };
        Self(names.map(key).collect())
    }

    pub(super) fn row<'a>(&self, values: impl Iterator<Item = &'a str> + Clone, out: &mut Vec<u8>) {
        let fields = self.0.iter().zip(values);
        let length = fields.clone().map(|(key, value)| delimited_len(key.len() + bytes_len(value.len()))).sum();
        put_length(FIRST, length, out);
        for (key, value) in fields {
            put_length(FIRST, key.len() + bytes_len(value.len()), out);
            out.extend_from_slice(key);
            put_bytes(SECOND, value.as_bytes(), out);
        }
    }
}
