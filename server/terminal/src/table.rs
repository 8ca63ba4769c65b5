//! Tables in aligned columns; cells are escaped for the terminal.

use unicode_width::UnicodeWidthStr as _;

use crate::screen;

/// A column's heading, and whether it is numeric.
pub type Column = (&'static str, bool);

/// Renders rows below headings: numbers right-aligned, columns as wide as their widest cell, two blanks apart.
pub fn render<const N: usize>(columns: [Column; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let heads = columns.map(|(head, _)| head.to_owned());
    let rows = rows.into_iter().map(|row| row.map(|cell| screen::line(&cell).into_owned()));
    let rows: Vec<[String; N]> = std::iter::once(heads).chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = cell.width().max(*most);
        }
    }
    let mut lines = Vec::with_capacity(rows.len());
    for row in rows {
        let mut line = String::new();
        for ((cell, most), (_, is_number)) in row.iter().zip(widths).zip(columns) {
            let blanks = " ".repeat(most - cell.width());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let rows = [["7", "ab", "x"], ["10", "漢字", ""], ["1", "e\u{301}a", "y\n"]];
        let table = render([("id", true), ("title", false), ("note", false)], rows.map(|row| row.map(str::to_owned)));
        assert_eq!(table, "id  title  note\n 7  ab     x\n10  漢字\n 1  e\u{301}a     y\\n");
    }
}
