//! Message heads: fields after validation (RFC 9113 section 8).
//!
//! The layer above can store what it computed from a head in the head's memo, and finds it there when the same block
//! comes again.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use crate::field::{Field, Role};

const ABSENT: u16 = u16::MAX;

/// Kind of field section, which decides the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Request,
    Response,
    Trailers,
}

/// The head of a request or a response, or a trailer section.
#[derive(Debug)]
pub struct Head {
    fields: Vec<Field>,
    method: u16,
    scheme: u16,
    authority: u16,
    path: u16,
    status: u16,
    pseudo_count: u16,
    content_length: Option<u64>,
    oversized: bool,
    memo: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Head {
    /// Validates; the error is the reason why the message is malformed (RFC 9113 section 8.1.1).
    pub(crate) fn new(fields: Vec<Field>, section: Section, oversized: bool) -> Result<Self, &'static str> {
        let mut head = Self {
            fields: Vec::new(),
            method: ABSENT,
            scheme: ABSENT,
            authority: ABSENT,
            path: ABSENT,
            status: ABSENT,
            pseudo_count: 0,
            content_length: None,
            oversized,
            memo: OnceLock::new(),
        };
        for (position, field) in fields.iter().enumerate() {
            let position = u16::try_from(position).map_err(|_| "too many fields")?;
            head.take(position, field)?;
        }
        head.fields = fields;
        if !oversized {
            head.require(section)?;
        }
        Ok(head)
    }

    /// Request head from another source than an HPACK block; pseudo-header fields come first.
    pub fn request(fields: Vec<Field>) -> Result<Self, &'static str> {
        if fields.iter().any(|field| field.role() == Role::Forbidden) {
            return Err("a field that HTTP/2 forbids");
        }
        Self::new(fields, Section::Request, false)
    }

    /// Response head from another source than an HPACK block; `:status` comes first.
    pub fn response(fields: Vec<Field>) -> Result<Self, &'static str> {
        Self::new(fields, Section::Response, false)
    }

    /// Trailers from another source than an HPACK block.
    pub fn trailers(fields: Vec<Field>) -> Result<Self, &'static str> {
        Self::new(fields, Section::Trailers, false)
    }

    fn take(&mut self, position: u16, field: &Field) -> Result<(), &'static str> {
        let slot = match field.role() {
            Role::Regular => return Ok(()),
            Role::ContentLength => return self.take_content_length(field.value()),
            Role::Forbidden => return Err("a field that HTTP/2 forbids"),
            // Our settings do not offer extended CONNECT (RFC 8441).
            Role::Protocol => return Err(":protocol was not offered"),
            Role::Method => &mut self.method,
            Role::Scheme => &mut self.scheme,
            Role::Authority => &mut self.authority,
            Role::Path => &mut self.path,
            Role::Status => &mut self.status,
        };
        if *slot != ABSENT {
            return Err("a pseudo-header field twice");
        }
        if self.pseudo_count != position {
            return Err("a pseudo-header field after a regular one");
        }
        *slot = position;
        self.pseudo_count = position + 1;
        Ok(())
    }

    fn take_content_length(&mut self, value: &[u8]) -> Result<(), &'static str> {
        let digits = value.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
        match (length, self.content_length) {
            (None, _) => Err("content-length is no number"),
            (Some(new), Some(old)) if new != old => Err("two different content-lengths"),
            (length, _) => {
                self.content_length = length;
                Ok(())
            }
        }
    }

    fn require(&self, section: Section) -> Result<(), &'static str> {
        let request_only = [self.method, self.scheme, self.authority, self.path];
        match section {
            Section::Trailers if self.pseudo_count > 0 => Err("a pseudo-header field in trailers"),
            Section::Response if request_only.iter().any(|slot| *slot != ABSENT) => {
                Err("a request's pseudo-header field in a response")
            }
            Section::Response if self.status_code().is_none() => Err("no valid :status"),
            Section::Trailers | Section::Response => Ok(()),
            Section::Request if self.status != ABSENT => Err(":status in a request"),
            Section::Request => self.require_request(),
        }
    }

    fn require_request(&self) -> Result<(), &'static str> {
        if self.method == ABSENT {
            return Err("no :method");
        }
        if self.method() == b"CONNECT" {
            let plain = self.scheme == ABSENT && self.path == ABSENT && self.authority != ABSENT;
            return if plain { Ok(()) } else { Err("CONNECT takes an :authority and nothing else") };
        }
        if self.scheme == ABSENT {
            return Err("no :scheme");
        }
        if self.path().is_empty() {
            return Err("no :path");
        }
        Ok(())
    }

    #[inline]
    fn value_at(&self, position: u16) -> &[u8] {
        self.fields.get(usize::from(position)).map_or(b"", Field::value)
    }

    /// `:method`, empty in a response.
    pub fn method(&self) -> &[u8] {
        self.value_at(self.method)
    }

    /// `:scheme`, empty in a response.
    pub fn scheme(&self) -> &[u8] {
        self.value_at(self.scheme)
    }

    /// `:authority`, empty if there is none.
    pub fn authority(&self) -> &[u8] {
        self.value_at(self.authority)
    }

    /// `:path`, empty in a response.
    #[inline]
    pub fn path(&self) -> &[u8] {
        self.value_at(self.path)
    }

    /// `:status` of a response.
    pub fn status_code(&self) -> Option<u16> {
        let value = self.value_at(self.status);
        let three_digits = value.len() == 3 && value.iter().all(u8::is_ascii_digit);
        three_digits.then(|| value.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')))
    }

    /// `content-length`, if present.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// True if fields were dropped because the list was larger than allowed.
    pub fn is_oversized(&self) -> bool {
        self.oversized
    }

    /// All regular fields, in the order received.
    pub fn fields(&self) -> &[Field] {
        &self.fields[usize::from(self.pseudo_count)..]
    }

    /// First value of a regular field.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().iter().find(|field| field.name() == name).map(Field::value)
    }

    /// Value that the layer above derived from this head, computed once per distinct head.
    #[inline]
    pub fn memo<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.memo.get_or_init(|| Arc::new(make())).downcast_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(section: Section, fields: &[(&str, &str)]) -> Result<Head, &'static str> {
        let fields = fields.iter().map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes())).collect();
        Head::new(fields, section, false)
    }

    const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "http"), (":path", "/")];

    #[test]
    fn request_needs_its_three_pseudo_fields_first_and_once() {
        assert!(check(Section::Request, &GET).is_ok());
        assert!(check(Section::Request, &GET[1..]).is_err());
        assert!(check(Section::Request, &GET[..2]).is_err());
        assert!(check(Section::Request, &[GET[0], GET[1], (":path", "")]).is_err());
        assert!(check(Section::Request, &[GET[0], GET[1], GET[2], GET[2]]).is_err());
        assert!(check(Section::Request, &[GET[0], ("a", "b"), GET[1], GET[2]]).is_err());
        assert!(check(Section::Request, &[GET[0], GET[1], GET[2], (":status", "200")]).is_err());
    }

    #[test]
    fn connect_takes_only_an_authority() {
        assert!(check(Section::Request, &[(":method", "CONNECT"), (":authority", "a:1")]).is_ok());
        assert!(check(Section::Request, &[(":method", "CONNECT"), (":authority", "a:1"), (":path", "/")]).is_err());
    }

    #[test]
    fn response_needs_a_status_and_trailers_have_none() {
        assert_eq!(check(Section::Response, &[(":status", "204")]).unwrap().status_code(), Some(204));
        assert!(check(Section::Response, &[]).is_err());
        assert!(check(Section::Response, &[(":status", "20x")]).is_err());
        assert!(check(Section::Response, &[(":status", "200"), (":path", "/")]).is_err());
        assert!(check(Section::Trailers, &[(":status", "200")]).is_err());
        assert!(check(Section::Trailers, &[("grpc-status", "0")]).is_ok());
    }

    #[test]
    fn content_length_must_be_one_number() {
        let with = |value| check(Section::Response, &[(":status", "200"), ("content-length", value)]);
        assert_eq!(with("12").unwrap().content_length(), Some(12));
        assert!(with("+1").is_err() && with("").is_err() && with("99999999999999999999").is_err());
    }

    #[test]
    fn memo_is_made_once() {
        let head = check(Section::Request, &GET).unwrap();
        assert_eq!(head.memo(|| 1), Some(&1));
        assert_eq!(head.memo(|| 2), Some(&1));
        assert_eq!(head.memo(|| "other type"), None);
    }
}
