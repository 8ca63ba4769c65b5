//! Header block decoding (RFC 7541 sections 3 and 6).

use std::cmp::max;

use super::STATIC;
use super::primitives::{decode_huffman, read_integer};
use super::table::Table;
use crate::error::ConnectionError;
use crate::field::Field;
use crate::frame::TABLE_BYTES_DEFAULT;

const BEYOND_TABLE: ConnectionError = ConnectionError::compression("index beyond the header table");

/// Properties of a decoded block besides its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// True if the list was larger than allowed; the excess fields are dropped, the table stays in step.
    pub(crate) oversized: bool,
    /// True if the same bytes decode to the same fields while the table's generation is unchanged.
    pub(crate) repeatable: bool,
}

#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
    /// Table size that we allow the peer.
    table_bytes_max: usize,
    /// A literal's name, followed by its value.
    literal: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new(table_bytes_max: usize) -> Self {
        // Until the peer has our settings it uses the protocol's default.
        let start = TABLE_BYTES_DEFAULT as usize;
        Self { table: Table::new(start), table_bytes_max: max(table_bytes_max, start), literal: Vec::new() }
    }

    /// Applies the new table limit, once the peer has acknowledged the setting.
    pub(crate) fn limit(&mut self, table_bytes_max: usize) {
        self.table_bytes_max = table_bytes_max;
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.table.generation()
    }

    /// Appends the block's fields, up to `list_bytes_max` as RFC 9113 section 6.5.2 counts.
    pub(crate) fn decode(
        &mut self,
        mut block: &[u8],
        list_bytes_max: usize,
        fields: &mut Vec<Field>,
    ) -> Result<Decoded, ConnectionError> {
        let mut list_bytes = 0;
        let mut decoded = Decoded { oversized: false, repeatable: true };
        let mut resizes = 0;
        while let Some(&first) = block.first() {
            let field = if first & 0x80 != 0 {
                let index = read_integer(&mut block, 7)?;
                if decoded.oversized {
                    self.check_index(index)?;
                    continue;
                }
                self.indexed(index)?
            } else if first & 0xe0 == 0x20 {
                resizes += 1;
                decoded.repeatable = false;
                if list_bytes > 0 || resizes > 2 {
                    return Err(ConnectionError::compression("misplaced table size update"));
                }
                self.resize(&mut block)?;
                continue;
            } else {
                let keep = first & 0x40 != 0;
                let field = self.literal(&mut block, if keep { 6 } else { 4 })?;
                if keep {
                    self.table.insert(field.clone());
                }
                // Only literals without indexing leave the table unchanged; never-indexed ones are secrets.
                decoded.repeatable &= first & 0xf0 == 0;
                field
            };
            list_bytes += field.table_bytes();
            if list_bytes > list_bytes_max {
                decoded.oversized = true;
            } else {
                fields.push(field);
            }
        }
        Ok(decoded)
    }

    /// Like [`Decoder::indexed`], for a field that is dropped.
    #[inline]
    fn check_index(&self, index: usize) -> Result<(), ConnectionError> {
        let is_known = (1..=STATIC.len()).contains(&index)
            || index.checked_sub(STATIC.len() + 1).is_some_and(|position| self.table.get(position).is_some());
        is_known.then_some(()).ok_or(BEYOND_TABLE)
    }

    #[inline]
    fn indexed(&self, index: usize) -> Result<Field, ConnectionError> {
        if (1..=STATIC.len()).contains(&index) {
            return Ok(Field::from_static(index - 1));
        }
        index.checked_sub(STATIC.len() + 1).and_then(|position| self.table.get(position)).cloned().ok_or(BEYOND_TABLE)
    }

    fn literal(&mut self, block: &mut &[u8], prefix_bits: u32) -> Result<Field, ConnectionError> {
        self.literal.clear();
        match read_integer(block, prefix_bits)? {
            0 => string(block, &mut self.literal)?,
            index => {
                let known = self.indexed(index)?;
                self.literal.extend_from_slice(known.name());
            }
        }
        let name_length = self.literal.len();
        string(block, &mut self.literal)?;
        Ok(Field::of_pair(&self.literal, name_length))
    }

    fn resize(&mut self, block: &mut &[u8]) -> Result<(), ConnectionError> {
        let bytes_max = read_integer(block, 5)?;
        if bytes_max > self.table_bytes_max {
            return Err(ConnectionError::compression("table size update above the setting"));
        }
        self.table.resize(bytes_max);
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }
}

/// Reads a string literal (RFC 7541 section 5.2).
fn string(block: &mut &[u8], out: &mut Vec<u8>) -> Result<(), ConnectionError> {
    let coded = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = read_integer(block, 7)?;
    let Some((bytes, rest)) = block.split_at_checked(length) else {
        return Err(ConnectionError::compression("header block ends inside a string"));
    };
    *block = rest;
    if coded {
        decode_huffman(bytes, out)
    } else {
        out.extend_from_slice(bytes);
        Ok(())
    }
}
