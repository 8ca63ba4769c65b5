//! Encoding of rows in each form of answers.
//!
//! The constant parts of every row, column names and punctuation, are prepared once.

mod json;
mod protobuf;
mod text;

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
    protobuf: protobuf::Rows,
    json: json::Rows,
}

impl RowEncoder {
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Self {
        Self { protobuf: protobuf::Rows::new(names.clone()), json: json::Rows::new(names) }
    }

    /// Appends the row with these values, one for each column.
    pub(crate) fn row<'a>(&self, format: Format, values: impl Iterator<Item = &'a str> + Clone, out: &mut Vec<u8>) {
        match format {
            Format::Protobuf => self.protobuf.row(values, out),
            Format::Json => self.json.row(values, out),
            Format::Text => text::row(values, out),
        }
    }

    /// Number of bytes that [`RowEncoder::row`] would append.
    pub(crate) fn row_len<'a>(&self, format: Format, values: impl Iterator<Item = &'a str> + Clone) -> usize {
        match format {
            Format::Protobuf => self.protobuf.row_len(values),
            Format::Json => self.json.row_len(values),
            Format::Text => text::row_len(values),
        }
    }
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
            let (values, before) = (row.iter().map(String::as_str), out.len());
            encoder.row(format, values.clone(), &mut out);
            assert_eq!(encoder.row_len(format, values), out.len() - before);
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
    }
}
