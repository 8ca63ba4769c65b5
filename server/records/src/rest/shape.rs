//! Response bodies, from pre-encoded rows or from the columns, with identical bytes.

use bytes::Bytes;
use serde::{
    Serialize, Serializer,
    ser::{SerializeMap as _, SerializeSeq as _},
};

use crate::{encode::Format, query::Selection, records::Shape};

/// `{"records":[{"column":"value",…},…],"num_record":N,"num_matching":N}`.
pub(super) static OBJECT: Shape =
    Shape { name: "object", format: Format::Json, frame: object_frame, each: object_each };

/// A line for each row.
pub(super) static LINES: Shape = Shape {
    name: "lines",
    format: Format::Text,
    frame: |_, _, _| Default::default(),
    each: |selection| lines(selection).into(),
};

fn object_frame(_: usize, rows: usize, matching: usize) -> (Bytes, Bytes) {
    let tail = format!("],\"num_record\":{rows},\"num_matching\":{matching}}}");
    (Bytes::from_static(b"{\"records\":["), tail.into())
}

#[derive(Serialize)]
struct Object<'a> {
    records: Rows<'a>,
    num_record: usize,
    num_matching: usize,
}

struct Rows<'a>(&'a Selection);

struct Row<'a>(&'a Selection, u32);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = self.0.rows();
        let mut list = serializer.serialize_seq(Some(rows.len()))?;
        for row in rows {
            list.serialize_element(&Row(self.0, *row))?;
        }
        list.end()
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let table = self.0.table();
        let mut object = serializer.serialize_map(Some(table.columns().len()))?;
        for (name, value) in table.names().zip(table.values(self.1)) {
            object.serialize_entry(name, value)?;
        }
        object.end()
    }
}

fn object_each(selection: &Selection) -> Vec<u8> {
    let object =
        Object { records: Rows(selection), num_record: selection.rows().len(), num_matching: selection.matching() };
    serde_json::to_vec(&object).expect("strings and numbers can be written")
}

/// The rows as lines of CSV.
pub(crate) fn lines(selection: &Selection) -> String {
    let table = selection.table();
    let mut lines = Vec::new();
    for row in selection.rows() {
        table.encoder().row(Format::Text, table.values(*row), &mut lines);
    }
    String::from_utf8(lines).expect("values are text, and so is what stands between them")
}
