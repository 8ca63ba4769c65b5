//! Protobuf messages, written field by field.

/// Fields in the order written, which must be that of their numbers.
#[derive(Clone, Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
    /// Positions of bytes that no model can know.
    unknown: Vec<usize>,
}

pub fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

impl Message {
    pub fn new() -> Self {
        Self::default()
    }

    /// Omitted if 0.
    pub fn number(self, field: u8, value: u64) -> Self {
        self.optional(field, (value != 0).then_some(value))
    }

    /// Omitted if absent, but not if 0.
    pub fn optional(mut self, field: u8, value: Option<u64>) -> Self {
        if let Some(value) = value {
            self.bytes.push(field << 3);
            varint(value, &mut self.bytes);
        }
        self
    }

    /// Bytes or text; omitted if empty.
    pub fn bytes(self, field: u8, value: &[u8]) -> Self {
        self.optional_bytes(field, Some(value).filter(|value| !value.is_empty()))
    }

    /// Omitted if absent, but not if empty.
    pub fn optional_bytes(self, field: u8, value: Option<&[u8]>) -> Self {
        match value {
            Some(value) => self.message(field, &Self { bytes: value.to_vec(), unknown: Vec::new() }),
            None => self,
        }
    }

    /// A nested message, even if empty.
    pub fn message(mut self, field: u8, inner: &Self) -> Self {
        self.bytes.push(field << 3 | 2);
        varint(inner.bytes.len() as u64, &mut self.bytes);
        let start = self.bytes.len();
        self.unknown.extend(inner.unknown.iter().map(|place| start + place));
        self.bytes.extend(&inner.bytes);
        self
    }

    /// A field with `bytes` bytes that no model can know, after `head`.
    pub fn unknown(mut self, head: &[u8], bytes: usize) -> Self {
        self.bytes.extend(head);
        let start = self.bytes.len();
        self.unknown.extend(start..start + bytes);
        self.bytes.resize(start + bytes, 0);
        self
    }

    /// The rest of a field that began with unknown bytes.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    /// Omitted if 0.
    pub fn double(self, field: u8, value: f64) -> Self {
        if value.to_bits() == 0 { self } else { self.optional_double(field, Some(value)) }
    }

    /// Omitted if absent, but not if 0.
    pub fn optional_double(mut self, field: u8, value: Option<f64>) -> Self {
        if let Some(value) = value {
            self.bytes.push(field << 3 | 1);
            self.bytes.extend(value.to_le_bytes());
        }
        self
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn unknown_places(&self) -> &[usize] {
        &self.unknown
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, unknown: Vec::new() }
    }
}
