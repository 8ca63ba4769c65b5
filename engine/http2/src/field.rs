//! Header fields and HTTP/2's own rules for them (RFC 9113 sections 8.2 and 8.3).
//!
//! A field is validated once, when it is decoded; table hits reuse the result. Cloning costs a reference count at most.

use std::fmt;
use std::sync::Arc;

use crate::hpack::{ENTRY_OVERHEAD_BYTES, STATIC};

/// Role of a field in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Method,
    Scheme,
    Authority,
    Path,
    Status,
    Protocol,
    ContentLength,
    /// Allowed in any message.
    Regular,
    /// Makes any message malformed.
    Forbidden,
}

#[derive(Clone)]
enum Bytes {
    /// Position in the static table.
    Static(u8),
    /// Name and value, concatenated.
    Shared { both: Arc<[u8]>, name_length: u32 },
}

/// A header field: a name and a value.
#[derive(Clone)]
pub struct Field {
    bytes: Bytes,
    role: Role,
}

impl Field {
    /// Creates a field.
    pub fn new(name: &[u8], value: &[u8]) -> Self {
        Self::of_pair(&[name, value].concat(), name.len())
    }

    /// Like [`Field::new`], from a name and a value that are concatenated.
    pub(crate) fn of_pair(both: &[u8], name_length: usize) -> Self {
        let (name, value) = both.split_at(name_length);
        let name_length = u32::try_from(name_length).unwrap_or(u32::MAX);
        debug_assert!(name_length < u32::MAX, "strings are bounded by the header block");
        Self { bytes: Bytes::Shared { both: both.into(), name_length }, role: judge(name, value) }
    }

    #[inline]
    pub(crate) fn from_static(position: usize) -> Self {
        let (name, _) = STATIC[position];
        let position = u8::try_from(position).unwrap_or(u8::MAX);
        // Values in the static table are well-formed, so only the name matters.
        Self { bytes: Bytes::Static(position), role: role_of(name.as_bytes()) }
    }

    /// The name; in lower case if the message is valid.
    #[inline]
    pub fn name(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Static(position) => STATIC[usize::from(*position)].0.as_bytes(),
            Bytes::Shared { both, name_length } => &both[..*name_length as usize],
        }
    }

    /// The value; any bytes but NUL, CR and LF.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Static(position) => STATIC[usize::from(*position)].1.as_bytes(),
            Bytes::Shared { both, name_length } => &both[*name_length as usize..],
        }
    }

    /// True if name and value match.
    pub fn is(&self, name: &[u8], value: &[u8]) -> bool {
        self.value() == value && self.name() == name
    }

    #[inline]
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Size as defined by RFC 7541 section 4.1 and RFC 9113 section 6.5.2.
    pub(crate) fn table_bytes(&self) -> usize {
        let text = match &self.bytes {
            Bytes::Static(position) => {
                let (name, value) = STATIC[usize::from(*position)];
                name.len() + value.len()
            }
            Bytes::Shared { both, .. } => both.len(),
        };
        text + ENTRY_OVERHEAD_BYTES
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name().escape_ascii(), self.value().escape_ascii())
    }
}

fn judge(name: &[u8], value: &[u8]) -> Role {
    if !value_is_legal(value) || (name == b"te" && value != b"trailers") {
        return Role::Forbidden;
    }
    role_of(name)
}

fn role_of(name: &[u8]) -> Role {
    match name {
        b":method" => Role::Method,
        b":scheme" => Role::Scheme,
        b":authority" => Role::Authority,
        b":path" => Role::Path,
        b":status" => Role::Status,
        b":protocol" => Role::Protocol,
        b"content-length" => Role::ContentLength,
        _ if is_hop_by_hop(name) => Role::Forbidden,
        _ if name_is_legal(name) => Role::Regular,
        _ => Role::Forbidden,
    }
}

/// True for the hop-by-hop fields of HTTP/1.1, which HTTP/2 forbids (RFC 9113 section 8.2.2).
#[inline]
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    matches!(name, b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade")
}

/// Checks RFC 9113 section 8.2.1, narrowed to the tokens of RFC 9110 section 5.6.2 in lower case.
fn name_is_legal(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|byte| {
            matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+'
                | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
        })
}

fn value_is_legal(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !blank(value.first()) && !blank(value.last()) && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn illegal_fields_are_found_when_they_are_decoded() {
        for (name, value) in [
            ("Upper", "x"),
            ("", "x"),
            ("with space", "x"),
            (":unknown", "x"),
            ("connection", "close"),
            ("te", "gzip"),
            ("a", " x"),
            ("a", "x\t"),
            ("a", "x\ny"),
            (":path", "/\0"),
        ] {
            assert_eq!(Field::new(name.as_bytes(), value.as_bytes()).role(), Role::Forbidden, "{name}: {value}");
        }
        assert_eq!(Field::new(b"te", b"trailers").role(), Role::Regular);
        assert_eq!(Field::new(b":path", b"/").role(), Role::Path);
    }
}
