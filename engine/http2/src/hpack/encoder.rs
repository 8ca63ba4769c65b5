//! Header block encoding (RFC 7541 section 6).
//!
//! The caller chooses which fields enter the table. A block encoded without an insertion can be kept in a
//! [`CachedBlock`] and copied until the table changes.

use std::cmp::min;

use super::primitives::{encode_huffman, huffman_len, write_integer};
use super::table::Table;
use super::{STATIC, static_table};
use crate::field::Field;
use crate::frame::TABLE_BYTES_DEFAULT;

/// Representation of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// Indexed: it will come again on this connection.
    Insert,
    /// A literal without indexing: it differs from message to message.
    Literal,
    /// A never-indexed literal, for secrets: no intermediary may index it either (RFC 7541 section 7.1.3).
    Never,
}

/// An encoded header block that is copied while the table is unchanged.
#[derive(Clone, Debug, Default)]
pub struct CachedBlock {
    bytes: Vec<u8>,
    /// A short block padded with zeros: copying a constant length needs no call.
    short: Option<[u8; SHORT_BYTES]>,
    /// Table generation the block was encoded on.
    valid_at: Option<u64>,
}

/// Length of a short block: a few indexes. With the frame header it fills three words.
pub(crate) const SHORT_BYTES: usize = 15;

/// A reusable padded block, and its bytes of padding.
pub(crate) type ShortBlock = ([u8; SHORT_BYTES], usize);

#[derive(Debug)]
pub(crate) struct Encoder {
    table: Table,
    /// Our own limit, whatever the peer allows.
    table_bytes_max: usize,
    /// Smallest and final size to announce in the next block (RFC 7541 section 4.2).
    resize: Option<(usize, usize)>,
}

impl Encoder {
    pub(crate) fn new(table_bytes_max: usize) -> Self {
        let start = TABLE_BYTES_DEFAULT as usize;
        let resize = (table_bytes_max < start).then_some((table_bytes_max, table_bytes_max));
        Self { table: Table::new(start), table_bytes_max, resize }
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE.
    pub(crate) fn peer_allows(&mut self, bytes: usize) {
        let wanted = min(bytes, self.table_bytes_max);
        let (smallest, current) = self.resize.unwrap_or((usize::MAX, self.table.bytes_max()));
        if wanted != current {
            self.resize = Some((min(smallest, wanted), wanted));
        }
    }

    /// Announces pending size changes; must precede the fields of every block.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        let Some((smallest, wanted)) = self.resize.take() else { return };
        if smallest < wanted {
            self.table.resize(smallest);
            write_integer(out, 0x20, 5, smallest);
        }
        self.table.resize(wanted);
        write_integer(out, 0x20, 5, wanted);
    }

    pub(crate) fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let known = match static_table::find(name, value) {
            Some((index, true)) => return write_integer(out, 0x80, 7, index),
            Some((index, false)) => Some(index),
            None => None,
        };
        if indexing == Indexing::Insert {
            if let Some(position) = self.table.iter().position(|field| field.is(name, value)) {
                return write_integer(out, 0x80, 7, STATIC.len() + 1 + position);
            }
            let field = Field::new(name, value);
            if field.table_bytes() <= self.table.bytes_max() {
                write_integer(out, 0x40, 6, known.unwrap_or(0));
                string_pair(known.is_none(), name, value, out);
                self.table.insert(field);
                return;
            }
        }
        let pattern = if indexing == Indexing::Never { 0x10 } else { 0 };
        write_integer(out, pattern, 4, known.unwrap_or(0));
        if known.is_none() {
            plain_string(name, out);
        }
        plain_string(value, out);
    }

    /// True if the cached block is still valid.
    #[inline]
    fn is_valid(&self, cache: &CachedBlock) -> bool {
        cache.valid_at == Some(self.table.generation()) && self.resize.is_none()
    }

    /// The cached block, if it is valid and short.
    #[inline]
    pub(crate) fn short(&self, cache: &CachedBlock) -> Option<ShortBlock> {
        let short = cache.short.filter(|_| self.is_valid(cache))?;
        Some((short, SHORT_BYTES - cache.bytes.len()))
    }

    /// Appends the block that `fields` writes, or copies it from `cache` if the table is unchanged.
    #[inline]
    pub(crate) fn cached(
        &mut self,
        cache: &mut CachedBlock,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut dyn FnMut(&[u8], &[u8], Indexing)),
    ) {
        if self.is_valid(cache) {
            out.extend_from_slice(&cache.bytes);
            return;
        }
        self.begin(out);
        let start = out.len();
        let before = self.table.generation();
        fields(&mut |name, value, indexing| self.field(name, value, indexing, out));
        cache.valid_at = None;
        if self.table.generation() == before {
            cache.bytes.clear();
            cache.bytes.extend_from_slice(&out[start..]);
            let mut short = [0; SHORT_BYTES];
            let start = short.get_mut(..cache.bytes.len());
            cache.short = start.map(|start| start.copy_from_slice(&cache.bytes)).map(|()| short);
            cache.valid_at = Some(before);
        }
    }
}

fn string_pair(with_name: bool, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    if with_name {
        shortest_string(name, out);
    }
    shortest_string(value, out);
}

/// Appends the shorter of Huffman and plain form: for strings sent once and then indexed, bytes matter more than
/// cycles.
fn shortest_string(string: &[u8], out: &mut Vec<u8>) {
    let coded = huffman_len(string);
    if coded < string.len() {
        write_integer(out, 0x80, 7, coded);
        encode_huffman(string, out);
    } else {
        plain_string(string, out);
    }
}

fn plain_string(string: &[u8], out: &mut Vec<u8>) {
    write_integer(out, 0, 7, string.len());
    out.extend_from_slice(string);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::Decoder;

    fn decode(decoder: &mut Decoder, block: &[u8]) -> Vec<Field> {
        let mut fields = Vec::new();
        decoder.decode(block, usize::MAX, &mut fields).unwrap();
        fields
    }

    #[test]
    fn repeated_block_shrinks_to_an_index_and_is_cached() {
        let mut encoder = Encoder::new(4096);
        let mut decoder = Decoder::new(4096);
        let mut cache = CachedBlock::default();
        for expected in [None, Some(1), Some(1)] {
            let mut out = Vec::new();
            encoder.cached(&mut cache, &mut out, |put| put(b"grpc-status", b"0", Indexing::Insert));
            assert!(expected.is_none_or(|length| out.len() == length));
            assert!(decode(&mut decoder, &out)[0].is(b"grpc-status", b"0"));
        }
    }

    #[test]
    fn cache_is_dropped_when_the_table_moves() {
        let mut encoder = Encoder::new(4096);
        let mut decoder = Decoder::new(4096);
        let mut cache = CachedBlock::default();
        for round in 0..4u8 {
            let mut out = Vec::new();
            encoder.cached(&mut cache, &mut out, |put| put(b"a", b"1", Indexing::Insert));
            encoder.field(b"b", &[b'0' + round], Indexing::Insert, &mut out);
            let fields = decode(&mut decoder, &out);
            assert!(fields[0].is(b"a", b"1") && fields[1].is(b"b", &[b'0' + round]));
        }
    }

    #[test]
    fn smaller_table_is_announced_once_with_its_minimum() {
        let mut encoder = Encoder::new(4096);
        let mut decoder = Decoder::new(4096);
        let mut out = Vec::new();
        encoder.field(b"a", b"1", Indexing::Insert, &mut out);
        decode(&mut decoder, &out);
        encoder.peer_allows(0);
        encoder.peer_allows(100);
        out.clear();
        encoder.begin(&mut out);
        encoder.field(b"a", b"1", Indexing::Insert, &mut out);
        assert_eq!(out[..3], [0x20, 0x3f, 100 - 31]);
        assert!(decode(&mut decoder, &out)[0].is(b"a", b"1"));
        assert_eq!(decoder.table().bytes_max(), 100);
        out.clear();
        encoder.begin(&mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn secret_is_marked_as_never_indexed() {
        let mut out = Vec::new();
        Encoder::new(4096).field(b"authorization", b"x", Indexing::Never, &mut out);
        assert_eq!(out, [0x1f, 8, 1, b'x']);
    }
}
