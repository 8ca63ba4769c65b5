//! Metadata of a call (gRPC over HTTP/2, "Custom-Metadata"): names with text or, for names that end in `-bin`, bytes.
//!
//! Received metadata is a view of its head; it is copied only to be changed.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use quire_http2::{Field, Head, is_hop_by_hop};

/// Writes without padding and reads either form, as the protocol requires.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reason why an entry was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataError {
    /// Names are lower-case letters, digits, `_`, `-` and `.`, and not reserved by the protocol.
    Name,
    /// Text is printable ASCII without leading or trailing blanks; other values need a name that ends in `-bin`.
    Value,
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "not a name for metadata: use a-z, 0-9, '_', '-' and '.', and no name of the protocol's own",
            Self::Value => "not a value for this name: use printable ASCII, or bytes with a name that ends in -bin",
        })
    }
}

impl std::error::Error for MetadataError {}

/// Ordered names and values beside a message; a name may occur more than once.
#[derive(Clone, Default)]
pub struct Metadata {
    received: Option<Arc<Head>>,
    /// Boxed, since most have none.
    added: Option<Box<Added>>,
}

/// Fields in wire form: bytes in base64.
#[derive(Clone, Default)]
struct Added(Vec<Field>);

impl Metadata {
    /// Creates empty metadata.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn received(head: Arc<Head>) -> Self {
        Self { received: Some(head), added: None }
    }

    /// Metadata of fields in wire form, without the reserved ones.
    pub(crate) fn of(fields: impl Iterator<Item = Field>) -> Self {
        Self::added(fields.filter(|field| !is_reserved(field.name())).collect())
    }

    fn added(fields: Vec<Field>) -> Self {
        Self { received: None, added: (!fields.is_empty()).then(|| Box::new(Added(fields))) }
    }

    fn added_mut(&mut self) -> &mut Vec<Field> {
        &mut self.added.get_or_insert_default().0
    }

    /// The received head that this is a view of.
    #[cfg(feature = "tower")]
    pub(crate) fn head(&self) -> Option<&Arc<Head>> {
        self.received.as_ref()
    }

    /// Status of the HTTP response that this is a view of.
    #[cfg(feature = "client")]
    pub(crate) fn http_status(&self) -> Option<u16> {
        self.received.as_ref().and_then(|head| head.status_code())
    }

    /// Entries in wire form, without the reserved ones.
    pub(crate) fn wire(&self) -> impl Iterator<Item = &Field> {
        let received = self.received.iter().flat_map(|head| head.fields()).filter(|field| !is_reserved(field.name()));
        received.chain(self.added.iter().flat_map(|added| &added.0))
    }

    /// Names and values as text, in order; values of `-bin` names in base64.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.wire().filter_map(|f| Some((std::str::from_utf8(f.name()).ok()?, std::str::from_utf8(f.value()).ok()?)))
    }

    /// True if both are the same received block, so that values parsed from one hold for the other. False does not
    /// imply that they differ.
    pub fn is_same_block(&self, other: &Self) -> bool {
        match (&self.received, &other.received) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs) && self.added.is_none() && other.added.is_none(),
            _ => false,
        }
    }

    /// First text value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let field = self.wire().find(|field| field.name() == name.as_bytes())?;
        std::str::from_utf8(field.value()).ok()
    }

    /// All text values of a name.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.values(name).filter_map(|value| std::str::from_utf8(value).ok())
    }

    /// First value of a `-bin` name.
    pub fn get_bin(&self, name: &str) -> Option<Vec<u8>> {
        self.get_all_bin(name).next()
    }

    /// All values of a `-bin` name, without invalid base64.
    pub fn get_all_bin<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
        let parts = self.values(name).flat_map(|value| value.split(|byte| *byte == b','));
        parts.filter_map(|part| BASE64.decode(part.trim_ascii()).ok())
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.wire().filter(move |field| field.name() == name.as_bytes()).map(Field::value)
    }

    /// Appends a text value.
    pub fn append(&mut self, name: &str, value: &str) -> Result<(), MetadataError> {
        check_name(name)?;
        let legal = value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim_ascii() == value;
        if !legal || name.ends_with("-bin") {
            return Err(MetadataError::Value);
        }
        self.added_mut().push(Field::new(name.as_bytes(), value.as_bytes()));
        Ok(())
    }

    /// Appends a bytes value, for a name that ends in `-bin`.
    pub fn append_bin(&mut self, name: &str, value: &[u8]) -> Result<(), MetadataError> {
        check_name(name)?;
        if !name.ends_with("-bin") {
            return Err(MetadataError::Name);
        }
        self.added_mut().push(Field::new(name.as_bytes(), encode_bytes(value).as_bytes()));
        Ok(())
    }

    /// Appends a value in base64, for a name that ends in `-bin`.
    pub fn append_encoded(&mut self, name: &str, base64: &str) -> Result<(), MetadataError> {
        let bytes = decode_bytes(base64.as_bytes()).ok_or(MetadataError::Value)?;
        self.append_bin(name, &bytes)
    }

    /// Replaces all values of a name by one text value.
    pub fn insert(&mut self, name: &str, value: &str) -> Result<(), MetadataError> {
        self.remove(name);
        self.append(name, value)
    }

    /// Replaces all values of a `-bin` name by one.
    pub fn insert_bin(&mut self, name: &str, value: &[u8]) -> Result<(), MetadataError> {
        self.remove(name);
        self.append_bin(name, value)
    }

    /// Removes all values of a name.
    pub fn remove(&mut self, name: &str) {
        let kept = self.wire().filter(|field| field.name() != name.as_bytes()).cloned().collect();
        self.added = Self::added(kept).added;
        self.received = None;
    }

    /// Appends all entries of `other`.
    pub fn extend(&mut self, other: &Self) {
        let fields: Vec<Field> = other.wire().cloned().collect();
        if !fields.is_empty() {
            self.added_mut().extend(fields);
        }
    }

    /// True if there are no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.added.is_none() && (self.received.is_none() || self.wire().next().is_none())
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

pub(crate) fn encode_bytes(value: &[u8]) -> String {
    BASE64.encode(value)
}

pub(crate) fn decode_bytes(value: &[u8]) -> Option<Vec<u8>> {
    BASE64.decode(value).ok()
}

fn check_name(name: &str) -> Result<(), MetadataError> {
    let legal = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.'));
    if legal && !name.is_empty() && !is_reserved(name.as_bytes()) { Ok(()) } else { Err(MetadataError::Name) }
}

/// True for names that the protocol itself sends, or HTTP/2 forbids.
fn is_reserved(name: &[u8]) -> bool {
    const FOR_SERVICES: [&[u8]; 4] =
        [b"grpc-trace-bin", b"grpc-tags-bin", b"grpc-previous-rpc-attempts", b"grpc-retry-pushback-ms"];
    name.starts_with(b"grpc-") && !FOR_SERVICES.contains(&name)
        || matches!(name, b"content-type" | b"te" | b"content-length" | b"host")
        || is_hop_by_hop(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_are_kept_in_order() {
        let mut metadata = Metadata::new();
        metadata.append("a", "1").unwrap();
        metadata.append("a", "2").unwrap();
        metadata.append_bin("b-bin", &[0xab, 0xab, 0xab]).unwrap();
        assert_eq!(metadata.get_all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(metadata.get_bin("b-bin").unwrap(), [0xab, 0xab, 0xab]);
        metadata.insert("a", "3").unwrap();
        assert_eq!(metadata.get_all("a").collect::<Vec<_>>(), ["3"]);
    }

    #[test]
    fn joined_and_padded_bytes_are_read() {
        let mut metadata = Metadata::new();
        metadata.added_mut().push(Field::new(b"b-bin", b"AQ==,Ag, Aw=="));
        assert_eq!(metadata.get_all_bin("b-bin").collect::<Vec<_>>(), [[1], [2], [3]]);
    }

    #[test]
    fn entries_that_would_break_the_protocol_are_refused() {
        let mut metadata = Metadata::new();
        for name in ["", "A", "a b", ":path", "grpc-status", "te", "content-type"] {
            assert_eq!(metadata.append(name, "x"), Err(MetadataError::Name), "{name}");
        }
        for value in ["\n", " x", "é"] {
            assert_eq!(metadata.append("a", value), Err(MetadataError::Value), "{value}");
        }
        assert!(metadata.append("a-bin", "x").is_err() && metadata.append_bin("a", b"x").is_err());
    }
}
