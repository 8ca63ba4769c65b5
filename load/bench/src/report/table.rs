//! Tables as text: in aligned columns for a terminal, and as CSV.

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};

/// Rows below headings. The first column and columns without a heading are text, the others numbers.
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

/// Rows below headings as CSV.
pub fn csv<'a>(
    heads: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<String> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(heads)?;
    for row in rows {
        csv.write_record(row)?;
    }
    String::from_utf8(csv.into_inner()?).context("the rows are no text")
}
