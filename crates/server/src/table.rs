//! Tables in aligned columns, for the console and the client. What a cell holds is shown, never obeyed by the terminal.

use comfy_table::{CellAlignment, Table, presets};

use crate::screen;

/// A column's head and whether it holds numbers.
pub(crate) type Column = (&'static str, bool);

/// Rows below heads, numbers to the right.
pub(crate) fn render<const N: usize>(columns: [Column; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    let rows = rows.into_iter().map(|row| row.map(|cell| screen::line(&cell).into_owned()));
    table.load_style(presets::NOTHING).set_header(columns.map(|column| column.0)).add_rows(rows);
    for (column, (_, number)) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        if number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Topics with the number of their books.
pub(crate) fn topics(topics: impl IntoIterator<Item = (String, String)>) -> String {
    render([("topic", false), ("books", true)], topics.into_iter().map(|(name, books)| [name, books]))
}
