//! Rows as JSON objects whose members are the columns, in the order of the file.
//!
//! Implements: RFC 8259 section 7 (strings).

/// For each column, what stands before its value: the end of the value before, the name, and the opening quote.
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
        out.extend_from_slice(b"\"},");
    }
}

/// Whether a byte cannot stand for itself.
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

fn escape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some(place) = rest.iter().position(|byte| SPECIAL[usize::from(*byte)]) {
        out.extend_from_slice(&rest[..place]);
        let byte = rest[place];
        rest = &rest[place + 1..];
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\x08' => b'b',
            b'\x0c' => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            control => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(DIGITS[usize::from(control >> 4)]);
                out.push(DIGITS[usize::from(control & 0xf)]);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.extend_from_slice(rest);
}
