//! Encoding of rows in each form of answers.
//!
//! The constant parts of every row, column names and punctuation, are prepared once.

use std::io;

use quire_rpc::wire::{bytes_len, delimited_len, put_bytes, put_delimited, put_length};

/// A form of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// Each row is a field of a message, with tag and length.
    Protobuf,
    /// Each row is an object followed by a comma.
    Json,
    /// Each row is a line.
    Text,
}

impl Format {
    pub(crate) const ALL: [Self; 3] = [Self::Protobuf, Self::Json, Self::Text];

    pub(crate) const fn place(self) -> usize {
        match self {
            Self::Protobuf => 0,
            Self::Json => 1,
            Self::Text => 2,
        }
    }

    /// Bytes after a row that the last row of an answer omits.
    pub(crate) const fn separator_bytes(self) -> usize {
        match self {
            Self::Json => 1,
            Self::Protobuf | Self::Text => 0,
        }
    }
}

/// Encodes rows of a table with these columns.
#[derive(Debug)]
pub(crate) struct RowEncoder {
    protobuf: ProtobufEncoder,
    json: JsonEncoder,
}

impl RowEncoder {
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Self {
        Self { protobuf: ProtobufEncoder::new(names.clone()), json: JsonEncoder::new(names) }
    }

    /// Appends the row with these values, one for each column.
    pub(crate) fn row<'a>(&self, format: Format, values: impl Iterator<Item = &'a str> + Clone, out: &mut Vec<u8>) {
        match format {
            Format::Protobuf => self.protobuf.row(values, out),
            Format::Json => self.json.row(values, out),
            Format::Text => csv_row(values, out),
        }
    }

    /// Length of the row with these values, which is not encoded for it.
    pub(crate) fn row_len<'a>(&self, format: Format, values: impl Iterator<Item = &'a str>) -> usize {
        match format {
            Format::Protobuf => delimited_len(self.protobuf.fields_len(values)),
            Format::Json => self.json.row_len(values),
            Format::Text => csv_row_len(values),
        }
    }
}

/// Number of `records`, `fields` and `key`.
const FIRST: u8 = 1;
/// Number of `value`.
const SECOND: u8 = 2;

/// Rows as field 1 of `ReaderResponse`, from each column's encoded `key`. Must be identical to prost's encoding.
#[derive(Debug)]
struct ProtobufEncoder(Vec<Box<[u8]>>);

impl ProtobufEncoder {
    fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
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

    fn row<'a>(&self, values: impl Iterator<Item = &'a str> + Clone, out: &mut Vec<u8>) {
        put_length(FIRST, self.fields_len(values.clone()), out);
        for (key, value) in self.0.iter().zip(values) {
            put_length(FIRST, key.len() + bytes_len(value.len()), out);
            out.extend_from_slice(key);
            put_bytes(SECOND, value.as_bytes(), out);
        }
    }
}

/// Rows as JSON objects whose members are the columns, in the order of the file.
#[derive(Debug)]
struct JsonEncoder {
    /// Bytes before each column's value: the end of the previous value, the name, and a colon.
    before: Vec<Box<[u8]>>,
}

impl JsonEncoder {
    fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let before = |(place, name)| {
            let mut before = if place == 0 { b"{".to_vec() } else { b",".to_vec() };
            json_string(name, &mut before);
            before.push(b':');
            before.into()
        };
        Self { before: names.enumerate().map(before).collect() }
    }

    fn row<'a>(&self, values: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
        for (before, value) in self.before.iter().zip(values) {
            out.extend_from_slice(before);
            json_string(value, out);
        }
        out.extend_from_slice(b"},");
    }

    fn row_len<'a>(&self, values: impl Iterator<Item = &'a str>) -> usize {
        let members = self.before.iter().zip(values);
        members.map(|(before, value)| before.len() + json_string_len(value)).sum::<usize>() + b"},".len()
    }
}

fn json_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string can be written to memory");
}

fn json_string_len(text: &str) -> usize {
    /// Writer that counts bytes.
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    serde_json::to_writer(&mut count, text).expect("bytes can be counted");
    count.0
}

/// True for bytes that make a value need quotes.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    special[b',' as usize] = true;
    special[b'"' as usize] = true;
    special[b'\r' as usize] = true;
    special[b'\n' as usize] = true;
    special
};

/// A row as a line of CSV (RFC 4180 section 2), with a line feed at its end.
fn csv_row<'a>(values: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    let start = out.len();
    for (place, value) in values.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        if is_quoted(value) {
            quoted(value, out);
        } else {
            out.extend_from_slice(value.as_bytes());
        }
    }
    // An empty line would not count as a row.
    if out.len() == start {
        out.extend_from_slice(b"\"\"");
    }
    out.push(b'\n');
}

fn csv_row_len<'a>(values: impl Iterator<Item = &'a str>) -> usize {
    let lengths = values.map(|value| {
        let quotes = value.bytes().filter(|byte| *byte == b'"').count();
        value.len() + if is_quoted(value) { quotes + 2 } else { 0 }
    });
    let (columns, bytes) = lengths.fold((0, 0), |(columns, bytes), length| (columns + 1, bytes + length));
    let line = bytes + usize::saturating_sub(columns, 1);
    // An empty line has two quotes.
    if line == 0 { 3 } else { line + 1 }
}

fn is_quoted(value: &str) -> bool {
    value.bytes().any(|byte| SPECIAL[usize::from(byte)])
}

fn quoted(value: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for (place, part) in value.as_bytes().split(|byte| *byte == b'"').enumerate() {
        if place > 0 {
            out.extend_from_slice(b"\"\"");
        }
        out.extend_from_slice(part);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quire_rpc::prost::Message as _;

    use super::*;
    use crate::grpc::wire;

    /// Text with more frequent special characters than chance would give.
    fn text() -> impl Strategy<Value = String> {
        let hard = prop_oneof![
            Just("\"".to_owned()),
            Just(",".to_owned()),
            Just("\r\n".to_owned()),
            Just("\\".to_owned()),
            Just("\0".to_owned()),
            Just("\u{1f}\u{7f}\u{2028}".to_owned()),
            Just("\u{10ffff}😀".to_owned()),
            any::<String>(),
            "[a-z0-9 ]{0,200}",
        ];
        prop::collection::vec(hard, 0..4).prop_map(|parts| parts.concat())
    }

    fn rows() -> impl Strategy<Value = (Vec<String>, Vec<Vec<String>>)> {
        (1..6usize).prop_flat_map(|columns| {
            let names = prop::collection::hash_set(text().prop_filter("a name", |name| !name.is_empty()), columns);
            let names = names.prop_map(|names| names.into_iter().collect());
            (names, prop::collection::vec(prop::collection::vec(text(), columns), 0..5))
        })
    }

    fn encoded(format: Format, names: &[String], rows: &[Vec<String>]) -> Vec<u8> {
        let encoder = RowEncoder::new(names.iter().map(String::as_str));
        let mut out = Vec::new();
        for row in rows {
            encoder.row(format, row.iter().map(String::as_str), &mut out);
        }
        out
    }

    proptest! {
        #[test]
        fn protobuf_is_what_prost_makes_of_the_rows((names, rows) in rows()) {
            let records = rows.iter().map(|row| {
                let fields = names.iter().zip(row);
                let fields = fields.map(|(key, value)| wire::Field { key: key.clone(), value: value.clone() });
                wire::Record { fields: fields.collect() }
            });
            let message = wire::ReaderResponse { records: records.collect(), ..wire::ReaderResponse::default() };
            prop_assert_eq!(encoded(Format::Protobuf, &names, &rows), message.encode_to_vec());
        }

        #[test]
        fn a_length_is_that_of_the_encoded_row((names, rows) in rows()) {
            let encoder = RowEncoder::new(names.iter().map(String::as_str));
            for (format, row) in Format::ALL.into_iter().flat_map(|format| rows.iter().map(move |row| (format, row))) {
                let (values, mut out) = (row.iter().map(String::as_str), Vec::new());
                encoder.row(format, values.clone(), &mut out);
                prop_assert_eq!(encoder.row_len(format, values), out.len());
            }
        }

        #[test]
        fn json_is_read_back_as_the_rows((names, rows) in rows()) {
            let mut objects = encoded(Format::Json, &names, &rows);
            prop_assert_eq!(objects.pop(), (!rows.is_empty()).then_some(b','));
            let list = [&b"["[..], &objects, b"]"].concat();
            let read: Vec<serde_json::Map<String, serde_json::Value>> = serde_json::from_slice(&list).unwrap();
            prop_assert_eq!(read.len(), rows.len());
            for (object, row) in read.iter().zip(&rows) {
                prop_assert_eq!(object.len(), names.len());
                for (name, value) in names.iter().zip(row) {
                    prop_assert_eq!(object[name].as_str(), Some(&**value));
                }
            }
        }

        #[test]
        fn text_is_read_back_as_the_rows((names, rows) in rows()) {
            let lines = encoded(Format::Text, &names, &rows);
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(&*lines);
            let read: Vec<Vec<String>> = reader.deserialize().map(Result::unwrap).collect();
            prop_assert_eq!(read, rows);
        }
    }

    #[test]
    fn a_row_looks_as_documented() {
        let (names, rows) = (["a", "b\""].map(String::from), [["1,\"".to_owned(), String::new()].to_vec()]);
        let json = String::from_utf8(encoded(Format::Json, &names, &rows)).unwrap();
        assert_eq!(json, r#"{"a":"1,\"","b\"":""},"#);
        assert_eq!(encoded(Format::Text, &names, &rows), b"\"1,\"\"\",\n");
        let empty = RowEncoder::new(["a"].into_iter());
        assert_eq!(empty.row_len(Format::Text, [""].into_iter()), "\"\"\n".len());
    }
}
