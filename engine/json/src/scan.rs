//! Tokens of a JSON text.

use super::DEPTH_MAX;
use super::error::{Error, shown};
use super::text::{Text, plain_len};

/// A position in a JSON text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next byte after white space.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    #[inline]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Consumes `token` if it comes next; skips no white space before it.
    #[inline]
    pub(super) fn take_exact(&mut self, token: &str) -> bool {
        let found = self.text.as_bytes().get(self.at..).is_some_and(|rest| rest.starts_with(token.as_bytes()));
        self.at += if found { token.len() } else { 0 };
        found
    }

    #[inline]
    pub(super) fn expect(&mut self, byte: u8, what: &str) -> Result<(), Error> {
        if self.take(byte) { Ok(()) } else { Err(self.expected(what)) }
    }

    /// Consumes a comma or `close`; true if it was a comma.
    #[inline]
    pub(super) fn has_next(&mut self, close: u8) -> Result<bool, Error> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.expected(if close == b'}' { "`,` or `}`" } else { "`,` or `]`" })),
        }
    }

    pub(super) fn end(&mut self) -> Result<(), Error> {
        if self.peek().is_none() { Ok(()) } else { Err(self.expected("the end")) }
    }

    /// An error that quotes what comes next.
    #[cold]
    pub(super) fn expected(&mut self, what: &str) -> Error {
        let at = self.at;
        let found = match self.peek() {
            None => String::from("the end of the JSON"),
            Some(b'"') => self
                .string()
                .map_or_else(|_| String::from("a string that does not end"), |text| format!("\"{}\"", shown(text.raw))),
            Some(b'{') => String::from("an object"),
            Some(b'[') => String::from("an array"),
            Some(_) => {
                let rest = &self.text[self.at..];
                let first = rest.chars().next().map_or(0, char::len_utf8);
                let end =
                    rest.find(|letter: char| !letter.is_ascii_alphanumeric() && !matches!(letter, '.' | '-' | '+'));
                format!("`{}`", shown(&rest[..end.unwrap_or(rest.len()).max(first)]))
            }
        };
        self.at = at;
        Error::new(format!("expected {what}, found {found} at byte {at}"))
    }

    /// Reads a string; the next byte must be its quote.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Text<'a>, Error> {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let (mut end, mut is_escaped) = (start, false);
        loop {
            end += plain_len(bytes.get(end..).unwrap_or_default());
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    is_escaped = true;
                    end += 2;
                }
                Some(byte) => {
                    return Err(Error::new(format!(
                        "the string at byte {} has the control character {byte:#04x}, which must be escaped",
                        self.at
                    )));
                }
                None => return Err(Error::new(format!("the string at byte {} does not end", self.at))),
            }
        }
        self.at = end + 1;
        // A backslash before a multi-byte character leaves `end` inside it; the loop ends at ASCII all the same.
        Ok(Text { raw: &self.text[start..end], is_escaped })
    }

    /// Reads a number of JSON's grammar, as text.
    #[inline]
    pub(super) fn number(&mut self, what: &str) -> Result<&'a str, Error> {
        self.peek();
        let bytes = self.text.as_bytes();
        let digits = |from: usize| {
            let rest = bytes.get(from..).unwrap_or_default();
            from + rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())
        };
        let start = self.at + usize::from(bytes.get(self.at) == Some(&b'-'));
        let mut end = digits(start);
        let mut right = end > start && (bytes[start] != b'0' || end == start + 1);
        if bytes.get(end) == Some(&b'.') {
            let from = end + 1;
            end = digits(from);
            right &= end > from;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let from = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            end = digits(from);
            right &= end > from;
        }
        if !right {
            return Err(self.expected(what));
        }
        let number = &self.text[self.at..end];
        self.at = end;
        Ok(number)
    }

    /// Skips a value of any kind, which must be valid JSON.
    pub(super) fn skip(&mut self) -> Result<(), Error> {
        // One bit for each open array or object, the innermost lowest; 1 is an object.
        let (mut open, mut depth) = (0u128, 0);
        loop {
            match self.peek() {
                Some(bracket @ (b'{' | b'[')) => {
                    let is_object = bracket == b'{';
                    self.at += 1;
                    if !self.take(if is_object { b'}' } else { b']' }) {
                        depth += 1;
                        if depth > DEPTH_MAX {
                            return Err(Error::too_deep());
                        }
                        open = open << 1 | u128::from(is_object);
                        if is_object {
                            self.skip_key()?;
                        }
                        continue;
                    }
                }
                Some(b'"') => {
                    self.string()?.decode()?;
                }
                Some(b't' | b'f' | b'n') => {
                    if !["true", "false", "null"].iter().any(|word| self.take_exact(word)) {
                        return Err(self.expected("a value"));
                    }
                }
                _ => {
                    self.number("a value")?;
                }
            }
            while depth > 0 {
                let is_object = open & 1 == 1;
                if self.has_next(if is_object { b'}' } else { b']' })? {
                    if is_object {
                        self.skip_key()?;
                    }
                    break;
                }
                open >>= 1;
                depth -= 1;
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn skip_key(&mut self) -> Result<(), Error> {
        self.key()?.decode()?;
        Ok(())
    }

    /// Reads a member's name and the colon after it.
    pub(super) fn key(&mut self) -> Result<Text<'a>, Error> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a member's name in quotes"));
        }
        let name = self.string()?;
        self.expect(b':', "`:`")?;
        Ok(name)
    }
}
