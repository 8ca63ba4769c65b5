//! Tables in aligned columns; cells are escaped for the terminal.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

use crate::screen;

/// A column's heading, and whether it is numeric.
pub type Column = (&'static str, bool);

/// Joins emoji; has no width.
const ZERO_WIDTH_JOINER: char = '\u{200d}';

/// Renders rows below headings: numbers right-aligned, columns as wide as their widest cell, two blanks apart.
pub fn render<const N: usize>(columns: [Column; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let heads = columns.map(|(head, _)| head.to_owned());
    let rows = rows.into_iter().map(|row| row.map(|cell| screen::line(&cell).into_owned()));
    let rows: Vec<[String; N]> = std::iter::once(heads).chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = width(cell).max(*most);
        }
    }
    let mut lines = Vec::with_capacity(rows.len());
    for row in rows {
        let mut line = String::new();
        for ((cell, most), (_, is_number)) in row.iter().zip(widths).zip(columns) {
            let blanks = " ".repeat(most - width(cell));
            let (left, right) = if is_number { (blanks.as_str(), "") } else { ("", blanks.as_str()) };
            line.extend([left, cell, right, "  "]);
        }
        line.truncate(line.trim_end_matches(' ').len());
        lines.push(line);
    }
    lines.join("\n")
}

/// Table of topics with their number of books.
pub fn topics(topics: impl IntoIterator<Item = (String, String)>) -> String {
    render([("topic", false), ("books", true)], topics.into_iter().map(|(name, books)| [name, books]))
}

/// Terminal columns of a text.
fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(columns).sum() }
}

fn columns(character: char) -> usize {
    let edges = WIDE.partition_point(|edge| *edge <= u32::from(character));
    if !edges.is_multiple_of(2) {
        return 2;
    }
    let category = character.general_category();
    let is_mark = matches!(category, GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark);
    usize::from(!is_mark && character != ZERO_WIDTH_JOINER)
}

/// Boundaries between narrow and wide characters, alternating: East Asian Width W or F of Unicode 14 (Annex 11).
/// Unassigned characters have the width of their neighbours.
#[rustfmt::skip]
const WIDE: [u32; 162] = [
    0x1100, 0x1160, 0x231a, 0x231c, 0x2329, 0x232b, 0x23e9, 0x23ed, 0x23f0, 0x23f1, 0x23f3, 0x23f4, 0x25fd, 0x25ff,
    0x2614, 0x2616, 0x2648, 0x2654, 0x267f, 0x2680, 0x2693, 0x2694, 0x26a1, 0x26a2, 0x26aa, 0x26ac, 0x26bd, 0x26bf,
    0x26c4, 0x26c6, 0x26ce, 0x26cf, 0x26d4, 0x26d5, 0x26ea, 0x26eb, 0x26f2, 0x26f4, 0x26f5, 0x26f6, 0x26fa, 0x26fb,
    0x26fd, 0x26fe, 0x2705, 0x2706, 0x270a, 0x270c, 0x2728, 0x2729, 0x274c, 0x274d, 0x274e, 0x274f, 0x2753, 0x2756,
    0x2757, 0x2758, 0x2795, 0x2798, 0x27b0, 0x27b1, 0x27bf, 0x27c0, 0x2b1b, 0x2b1d, 0x2b50, 0x2b51, 0x2b55, 0x2b56,
    0x2e80, 0x303f, 0x3041, 0x3248, 0x3250, 0x4dc0, 0x4e00, 0xa4d0, 0xa960, 0xa980, 0xac00, 0xd7b0, 0xf900, 0xfb00,
    0xfe10, 0xfe20, 0xfe30, 0xfe70, 0xff01, 0xff61, 0xffe0, 0xffe8, 0x16fe0, 0x1bc00, 0x1f004, 0x1f005, 0x1f0cf,
    0x1f0d1, 0x1f18e, 0x1f18f, 0x1f191, 0x1f19b, 0x1f200, 0x1f321, 0x1f32d, 0x1f336, 0x1f337, 0x1f37d, 0x1f37e,
    0x1f394, 0x1f3a0, 0x1f3cb, 0x1f3cf, 0x1f3d4, 0x1f3e0, 0x1f3f1, 0x1f3f4, 0x1f3f5, 0x1f3f8, 0x1f43f, 0x1f440,
    0x1f441, 0x1f442, 0x1f4fd, 0x1f4ff, 0x1f53e, 0x1f54b, 0x1f54f, 0x1f550, 0x1f568, 0x1f57a, 0x1f57b, 0x1f595,
    0x1f597, 0x1f5a4, 0x1f5a5, 0x1f5fb, 0x1f650, 0x1f680, 0x1f6c6, 0x1f6cc, 0x1f6cd, 0x1f6d0, 0x1f6d3, 0x1f6d5,
    0x1f6e0, 0x1f6eb, 0x1f6f0, 0x1f6f4, 0x1f700, 0x1f7e0, 0x1f800, 0x1f90c, 0x1f93b, 0x1f93c, 0x1f946, 0x1f947,
    0x1fa00, 0x1fa70, 0x1fb00, 0x20000, 0xe0001,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let rows = [["7", "ab", "x"], ["10", "漢字", ""], ["1", "e\u{301}a", "y\n"]];
        let table = render([("id", true), ("title", false), ("note", false)], rows.map(|row| row.map(str::to_owned)));
        assert_eq!(table, "id  title  note\n 7  ab     x\n10  漢字\n 1  e\u{301}a     y\\n");
    }

    #[test]
    fn wide_characters_take_two_columns_and_marks_none() {
        for (text, wanted) in
            [("abc", 3), ("漢", 2), ("ｗ", 2), ("ñ", 1), ("n\u{303}", 1), ("a\u{20dd}", 1), ("👩\u{200d}🔬", 4)]
        {
            assert_eq!(width(text), wanted, "{text}");
        }
    }
}
