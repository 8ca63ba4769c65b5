//! Untrusted text on a terminal: control, escape and bidirectional characters are escaped. Also the terminal's size.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{IsTerminal as _, stdin, stdout},
};

/// True for characters that act on a terminal instead of being shown: controls, changes of direction, line separators,
/// and invisible marks and tags.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// True if nothing needs to be escaped.
pub fn is_plain(text: &str) -> bool {
    !text.contains(acts)
}

/// Escapes text into one line, as in a Rust string.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |out, character| {
        let _ = write!(out, "{}", character.escape_default());
    })
}

/// Like [`line()`], but keeps newlines: for messages of this program that quote untrusted text.
pub fn lines(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// JSON in one line, safe on any terminal and with the same value for any parser.
pub fn json(value: &impl ToString) -> String {
    json_text(&value.to_string()).into_owned()
}

/// Like [`json`], for text that is already JSON.
pub fn json_text(text: &str) -> Cow<'_, str> {
    escaped(text, |out, character| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

fn escaped(text: &str, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if is_plain(text) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if acts(character) {
            escape(&mut out, character);
        } else {
            out.push(character);
        }
    }
    out.into()
}

/// True if this process both reads from a terminal and writes to one.
pub fn is_terminal() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// Rows and columns of the terminal that this process both reads from and writes to; `None` without such a terminal or
/// if its size is unknown.
pub fn size() -> Option<(usize, usize)> {
    if !is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some((size.ws_row.into(), size.ws_col.into())).filter(|(rows, columns)| *rows > 1 && *columns > 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_terminal_obeys_is_escaped_and_the_rest_is_not() {
        for (text, wanted) in [
            ("plain – ünïcödé 😈 \u{5d0}", "plain – ünïcödé 😈 \u{5d0}"),
            ("\u{1b}[2J\u{9b}2J\u{7}\u{7f}", "\\u{1b}[2J\\u{9b}2J\\u{7}\\u{7f}"),
            ("a\u{202e}b\u{2066}c\u{2028}d\u{e0041}", "a\\u{202e}b\\u{2066}c\\u{2028}d\\u{e0041}"),
            ("a\r\n\tb", "a\\r\\n\\tb"),
        ] {
            assert_eq!(super::line(text), wanted);
        }
    }

    #[test]
    fn escaped_json_has_the_same_characters_in_pairs_of_surrogates_beyond_the_first_plane() {
        let text = super::json(&"\"\u{1b}[2J\u{9b}\u{202e}\u{e0041}\u{7f}\"");
        assert_eq!(text, r#""\u001b[2J\u009b\u202e\udb40\udc41\u007f""#);
    }
}
