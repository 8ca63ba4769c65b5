//! Response messages: from pre-encoded rows, or from columns by prost, with identical bytes.

use bytes::Bytes;
use quire_rpc::prost::Message as _;
use quire_rpc::wire::{put_length, put_number};

use super::wire::{Field, ReaderResponse, ReaderResponseString, Record};
use crate::{encode::Format, query::Selection, records::Shape};

/// `ReaderResponse`.
pub(super) static RECORDS: Shape =
    Shape { name: "ReaderResponse", format: Format::Protobuf, frame: records_frame, each: records_each };

/// `ReaderResponseString`.
pub(super) static LINES: Shape =
    Shape { name: "ReaderResponseString", format: Format::Text, frame: lines_frame, each: lines_each };

/// `num_record` and `num_matching`, with the same numbers in both messages.
fn counts(rows: usize, matching: usize) -> Bytes {
    let mut out = Vec::new();
    put_number(2, rows as u64, &mut out);
    put_number(3, matching as u64, &mut out);
    out.into()
}

fn records_frame(_: usize, rows: usize, matching: usize) -> (Bytes, Bytes) {
    (Bytes::new(), counts(rows, matching))
}

fn lines_frame(bytes: usize, rows: usize, matching: usize) -> (Bytes, Bytes) {
    let mut head = Vec::new();
    if bytes > 0 {
        put_length(1, bytes, &mut head);
    }
    (head.into(), counts(rows, matching))
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn records_each(selection: &Selection) -> Vec<u8> {
    let table = selection.table();
    let record = |row: &u32| {
        let fields = table.names().zip(table.values(*row));
        let fields = fields.map(|(key, value)| Field { key: key.to_owned(), value: value.to_owned() });
        Record { fields: fields.collect() }
    };
    let rows = selection.rows();
    let message = ReaderResponse {
        records: rows.iter().map(record).collect(),
        num_record: signed(rows.len()),
        num_matching: signed(selection.matching()),
    };
    message.encode_to_vec()
}

fn lines_each(selection: &Selection) -> Vec<u8> {
    let rows = selection.rows();
    let message = ReaderResponseString {
        data: crate::rest::lines(selection),
        num_record: signed(rows.len()),
        num_matching: signed(selection.matching()),
    };
    message.encode_to_vec()
}
