//! Rows as JSON objects whose members are the columns, in the order of the file.
//!
//! Implements: RFC 8259 section 7 (strings).

/// Bytes before each column's value: the end of the previous value, the name, and the opening quote.
#[derive(Debug)]
pub(super) struct Rows(Vec<Box<[u8]>>);

impl Rows {
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let before = |(place, name)| {
            let mut before = if place == 0 { b"{\"".to_vec() } else { b"\",\"".to_vec() };
            escape(name, &mut before);
            before.extend_from_slice(b"\":\"");
            before.into()
        };
        Self(names.enumerate().map(before).collect())
    }

    pub(super) fn row<'a>(&self, values: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
        for (before, value) in self.0.iter().zip(values) {
            out.extend_from_slice(before);
            escape(value, out);
        }
        out.extend_from_slice(ROW_END);
    }

    pub(super) fn row_len<'a>(&self, values: impl Iterator<Item = &'a str>) -> usize {
        let members = self.0.iter().zip(values);
        members.map(|(before, value)| before.len() + escaped_len(value)).sum::<usize>() + ROW_END.len()
    }
}

/// The closing quote of the last value, the end of the object, and a comma.
const ROW_END: &[u8] = b"\"},";

/// True for bytes that must be escaped.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut control = 0;
    while control < 0x20 {
        special[control] = true;
        control += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
};

/// The letter of a byte's short escape; other bytes are escaped by number.
fn short_escape(byte: u8) -> Option<u8> {
    match byte {
        b'"' | b'\\' => Some(byte),
        b'\x08' => Some(b'b'),
        b'\x0c' => Some(b'f'),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        b'\t' => Some(b't'),
        _ => None,
    }
}

fn escaped_len(text: &str) -> usize {
    let special = text.bytes().filter(|byte| SPECIAL[usize::from(*byte)]);
    text.len() + special.map(|byte| if short_escape(byte).is_some() { 1 } else { 5 }).sum::<usize>()
}

fn escape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some(place) = rest.iter().position(|byte| SPECIAL[usize::from(*byte)]) {
        out.extend_from_slice(&rest[..place]);
        let byte = rest[place];
        rest = &rest[place + 1..];
        if let Some(short) = short_escape(byte) {
            out.extend_from_slice(&[b'\\', short]);
        } else {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(b"\\u00");
            out.push(DIGITS[usize::from(byte >> 4)]);
            out.push(DIGITS[usize::from(byte & 0xf)]);
        }
    }
    out.extend_from_slice(rest);
}
