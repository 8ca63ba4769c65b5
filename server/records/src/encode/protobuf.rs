//! Rows as field 1 of `ReaderResponse`. Must be identical to prost's encoding of the same message.

use quire_rpc::wire::{bytes_len, delimited_len, put_bytes, put_delimited, put_length};

/// Number of `records`, `fields` and `key`.
const FIRST: u8 = 1;
/// Number of `value`.
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

    /// Length of a row without its own tag and length.
    fn fields_len<'a>(&self, values: impl Iterator<Item = &'a str>) -> usize {
        let fields = self.0.iter().zip(values);
        fields.map(|(key, value)| delimited_len(key.len() + bytes_len(value.len()))).sum()
    }

    pub(super) fn row_len<'a>(&self, values: impl Iterator<Item = &'a str>) -> usize {
        delimited_len(self.fields_len(values))
    }

    pub(super) fn row<'a>(&self, values: impl Iterator<Item = &'a str> + Clone, out: &mut Vec<u8>) {
        put_length(FIRST, self.fields_len(values.clone()), out);
        for (key, value) in self.0.iter().zip(values) {
            put_length(FIRST, key.len() + bytes_len(value.len()), out);
            out.extend_from_slice(key);
            put_bytes(SECOND, value.as_bytes(), out);
        }
    }
}
