//! Tables for a terminal: columns without lines between them.
//!
//! Must not know what the cells are.

use comfy_table::{CellAlignment, Table, presets};

/// Rows below heads. The first column is words, a column without a head too, and the others are numbers.
pub(crate) fn table<R: Into<comfy_table::Row>>(heads: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heads).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index > 0 && !heads[index].is_empty() {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
