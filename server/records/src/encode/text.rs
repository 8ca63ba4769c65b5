//! Rows as lines of CSV, with a line feed at the end of each.
//!
//! Implements: RFC 4180 section 2 (quoting).

/// True for bytes that make a value need quotes.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    special[b',' as usize] = true;
    special[b'"' as usize] = true;
    special[b'\r' as usize] = true;
    special[b'\n' as usize] = true;
    special
};

pub(super) fn row<'a>(values: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
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

fn is_quoted(value: &str) -> bool {
    value.bytes().any(|byte| SPECIAL[usize::from(byte)])
}

pub(super) fn row_len<'a>(values: impl Iterator<Item = &'a str>) -> usize {
    let quotes = |value: &str| 2 + value.bytes().filter(|byte| *byte == b'"').count();
    let value_len = |value: &str| value.len() + if is_quoted(value) { quotes(value) } else { 0 };
    // Each value with the comma or the line feed after it; an empty line is a pair of quotes.
    let length = values.map(|value| value_len(value) + 1).sum();
    if length == 1 { 3 } else { length }
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
