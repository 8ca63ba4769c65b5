//! A loaded file: its columns and its pre-encoded rows. Immutable.

mod column;
mod dictionary;
mod encoded;

use std::collections::HashMap;

pub(crate) use self::{
    column::{Column, Growing as GrowingColumn},
    encoded::{Encoded, Growing as GrowingEncoded, Place},
};
use crate::encode::{Format, RowEncoder};

/// A loaded file.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    by_name: HashMap<Box<str>, usize>,
    rows: u32,
    encoder: RowEncoder,
    encoded: [Option<Encoded>; 3],
    version: u64,
}

impl Table {
    /// `version` is equal for files with the same columns and values.
    pub(crate) fn new(columns: Vec<Column>, rows: u32, encoded: [Option<Encoded>; 3], version: u64) -> Self {
        let by_name = columns.iter().enumerate().map(|(place, column)| (column.name().into(), place)).collect();
        let encoder = RowEncoder::new(columns.iter().map(Column::name));
        Self { columns, by_name, rows, encoder, encoded, version }
    }

    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn column_place(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.columns.iter().map(Column::name)
    }

    /// The row's values, in the order of the columns.
    pub(crate) fn values(&self, row: u32) -> impl Iterator<Item = &str> + Clone {
        self.columns.iter().map(move |column| column.value(row))
    }

    /// The rows in this form, if pre-encoded.
    pub(crate) fn encoded(&self, format: Format) -> Option<&Encoded> {
        self.encoded[format.place()].as_ref()
    }

    /// Length of the row in this form, pre-encoded or not.
    pub(crate) fn row_bytes(&self, row: u32, format: Format) -> usize {
        match self.encoded(format) {
            Some(encoded) => encoded.place(row).len(),
            None => self.encoder.row_len(format, self.values(row)),
        }
    }

    pub(crate) fn encoder(&self) -> &RowEncoder {
        &self.encoder
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(Column::bytes).sum();
        columns + self.encoded.iter().flatten().map(Encoded::bytes).sum::<usize>()
    }
}
