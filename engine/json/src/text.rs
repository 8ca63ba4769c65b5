//! JSON strings: escaping and unescaping.

use std::borrow::Cow;

use super::error::Error;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = ONES << 7;

/// Sets the high bit of each byte that is below 0x20, a quote or a backslash; bits above the first set one may be
/// wrong.
#[inline]
fn special(eight: u64) -> u64 {
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = eight.wrapping_sub(ONES * 0x20) & !eight;
    (control | zero(eight ^ (ONES * u64::from(b'"'))) | zero(eight ^ (ONES * u64::from(b'\\')))) & HIGHS
}

/// Length of the prefix that needs no escaping in JSON.
#[inline]
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        let found = special(u64::from_le_bytes(*chunk));
        if found != 0 {
            return len + (found.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    len + rest.iter().position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\')).unwrap_or(rest.len())
}

/// Appends a quoted string.
#[inline]
pub(super) fn write_quoted(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    out.push(b'"');
    loop {
        let (plain, after) = rest.split_at(plain_len(rest));
        out.extend_from_slice(plain);
        let Some((byte, after)) = after.split_first() else { break };
        write_escape(*byte, out);
        rest = after;
    }
    out.push(b'"');
}

fn write_escape(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble & 15)];
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Raw contents of a JSON string, between the quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    pub(super) raw: &'a str,
    pub(super) is_escaped: bool,
}

impl<'a> Text<'a> {
    #[inline]
    pub(super) fn decode(self) -> Result<Cow<'a, str>, Error> {
        if self.is_escaped { Ok(Cow::Owned(self.unescape()?)) } else { Ok(Cow::Borrowed(self.raw)) }
    }

    fn unescape(self) -> Result<String, Error> {
        let mut out = String::with_capacity(self.raw.len());
        let mut rest = self.raw;
        while let Some(at) = rest.find('\\') {
            out.push_str(&rest[..at]);
            rest = escape(&rest[at + 1..], &mut out)?;
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// Appends the character of an escape and returns the rest.
fn escape<'a>(text: &'a str, out: &mut String) -> Result<&'a str, Error> {
    let mut letters = text.chars();
    let letter = match letters.next() {
        Some(letter @ ('"' | '\\' | '/')) => letter,
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => {
            let (letter, rest) = unicode(letters.as_str())?;
            out.push(letter);
            return Ok(rest);
        }
        other => {
            let found = other.map(String::from).unwrap_or_default();
            return Err(Error::new(format!("a string has the escape \\{found}, which JSON does not know")));
        }
    };
    out.push(letter);
    Ok(letters.as_str())
}

fn unicode(text: &str) -> Result<(char, &str), Error> {
    let (first, rest) = hex(text)?;
    let mut code = u32::from(first);
    let mut after = rest;
    if (0xd800..0xdc00).contains(&first)
        && let Some(low) = rest.strip_prefix("\\u")
    {
        let (second, rest) = hex(low)?;
        if (0xdc00..0xe000).contains(&second) {
            code = 0x10000 + ((u32::from(first) - 0xd800) << 10) + (u32::from(second) - 0xdc00);
            after = rest;
        }
    }
    let letter = char::from_u32(code);
    Ok((letter.ok_or_else(|| Error::new(format!("a string has half of a surrogate pair, \\u{first:04x}")))?, after))
}

fn hex(text: &str) -> Result<(u16, &str), Error> {
    let digits = text.get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let number = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
    Ok((number.ok_or_else(|| Error::new("a string has \\u without four hexadecimal digits"))?, &text[4..]))
}
