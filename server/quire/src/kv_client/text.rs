//! Keys and values as text, hexadecimal or base64. Bytes that are not text are never sent to a terminal unescaped.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use quire_terminal::screen;
use serde_json::Value;

use crate::cli::KvArgs;

/// Notation of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Hex,
    Base64,
}

impl Form {
    pub(super) fn new(args: &KvArgs) -> Self {
        match (args.hex, args.base64) {
            (true, _) => Self::Hex,
            (_, true) => Self::Base64,
            _ => Self::Text,
        }
    }

    /// The flag that selects it.
    pub(super) fn flag(self) -> Option<&'static str> {
        match self {
            Self::Text => None,
            Self::Hex => Some("--hex"),
            Self::Base64 => Some("--base64"),
        }
    }

    /// Parses an argument.
    pub(super) fn read(self, text: &str) -> anyhow::Result<Vec<u8>> {
        let shown = screen::line(text);
        match self {
            Self::Text => Ok(text.into()),
            Self::Hex => from_hex(text)
                .with_context(|| format!("'{shown}' is no hexadecimal; it must be two of 0-9 and a-f for each byte")),
            Self::Base64 => STANDARD.decode(text).with_context(|| format!("'{shown}' is no base64, with its padding")),
        }
    }

    /// One line for any terminal. In text, bytes that are not UTF-8 and characters that act on a terminal are escaped.
    pub(super) fn show(self, bytes: &[u8]) -> String {
        let mut out = String::with_capacity(bytes.len() * 2);
        match self {
            Self::Hex => hex(bytes, "", &mut out),
            Self::Base64 => STANDARD.encode_string(bytes, &mut out),
            Self::Text => {
                for chunk in bytes.utf8_chunks() {
                    out.push_str(&screen::line(chunk.valid()));
                    hex(chunk.invalid(), "\\x", &mut out);
                }
            }
        }
        out
    }

    /// Adds bytes to a JSON object: as text if possible, otherwise under a name with the encoding.
    pub(super) fn put(self, json: &mut Value, name: &str, bytes: &[u8]) {
        match (self, std::str::from_utf8(bytes)) {
            (Self::Text, Ok(text)) => json[name] = text.into(),
            (Self::Hex, _) => json[format!("{name}_hex")] = self.show(bytes).into(),
            (Self::Text | Self::Base64, _) => json[format!("{name}_base64")] = Self::Base64.show(bytes).into(),
        }
    }
}

fn hex(bytes: &[u8], before: &str, out: &mut String) {
    for byte in bytes {
        let _ = write!(out, "{before}{byte:02x}");
    }
}

fn from_hex(text: &str) -> anyhow::Result<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        bail!("it has {} characters", text.chars().count());
    }
    (0..text.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&text[at..at + 2], 16)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_can_be_given_and_shown() {
        let bytes: Vec<u8> = (0..=255).collect();
        for form in [Form::Hex, Form::Base64] {
            assert_eq!(form.read(&form.show(&bytes)).expect("what was shown"), bytes);
        }
        assert_eq!(Form::Text.show(b"a\x1b[2J\xff\xc2\x9b\tb"), "a\\u{1b}[2J\\xff\\u{9b}\\tb");
        assert_eq!(Form::Hex.read("00Ff").expect("bytes"), [0, 255]);
        for (form, text) in [(Form::Hex, "0"), (Form::Hex, "0g"), (Form::Hex, "äö"), (Form::Base64, "a")] {
            assert!(form.read(text).is_err(), "{text}");
        }
    }
}
