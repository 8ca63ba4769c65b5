//! Text of others on a terminal: control, escape and bidirectional characters are shown as what they are, never obeyed.
//! Also what this side of a terminal can tell: its size.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{IsTerminal as _, stdin, stdout},
};

/// Whether a character does something to a terminal instead of being shown: controls, changes of direction, line
/// separators, and marks and tags that are not seen.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Whether nothing in it needs to be escaped.
pub fn is_plain(text: &str) -> bool {
    !text.contains(acts)
}

/// The text in one line, escaped as in a string of Rust.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |out, character| {
        let _ = write!(out, "{}", character.escape_default());
    })
}

/// As [`line`], with the ends of lines as they are: for messages of this program that quote the text of others.
pub fn lines(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// JSON in one line that any terminal shows; any reader of JSON gets the same value.
pub fn json(value: &impl ToString) -> String {
    json_text(&value.to_string()).into_owned()
}

/// As [`json`], of what is JSON already.
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

/// Rows and columns of the terminal that this process both reads from and writes to; none if there is no such terminal,
/// or it does not say.
pub fn size() -> Option<(usize, usize)> {
    if !(stdin().is_terminal() && stdout().is_terminal()) {
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
