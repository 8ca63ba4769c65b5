//! Well-known types whose JSON is one string: field mask paths, type URLs, base64.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{alphabet, engine::DecodePaddingMode};

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
const LENIENT_STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const LENIENT_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Appends bytes as quoted base64.
pub(super) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
    out.push(b'"');
}

/// Length of the bytes that a valid base64 text decodes to.
pub(super) fn base64_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

/// Decodes base64 in either alphabet, padded or not; false if it is invalid.
pub(super) fn read_base64(text: &str, out: &mut Vec<u8>) -> bool {
    let is_url_safe = text.contains(['-', '_']);
    let engine = if is_url_safe { LENIENT_URL_SAFE } else { LENIENT_STANDARD };
    engine.decode_vec(text, out).is_ok()
}

/// Appends a field mask's path in JSON form (`fooBar.baz`); false if it would not read back as the same path.
pub(super) fn write_path(path: &str, out: &mut String) -> bool {
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '_' => match letters.next() {
                Some(next @ 'a'..='z') => out.push(next.to_ascii_uppercase()),
                _ => return false,
            },
            'A'..='Z' => return false,
            _ => out.push(letter),
        }
    }
    true
}

/// A field mask's path in protobuf form (`foo_bar.baz`); None if it is not valid in JSON.
pub(super) fn read_path(path: &str) -> Option<String> {
    let mut out = String::with_capacity(path.len() + 4);
    for letter in path.chars() {
        match letter {
            '_' => return None,
            'A'..='Z' => {
                out.push('_');
                out.push(letter.to_ascii_lowercase());
            }
            _ => out.push(letter),
        }
    }
    Some(out)
}
