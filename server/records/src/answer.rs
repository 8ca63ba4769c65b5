//! Answers: bytes shared with the table where rows are contiguous, and copied where they are scattered.

use bytes::Bytes;

use crate::{
    encode::Format,
    query::Selection,
    table::{Encoded, Span},
};

/// Minimum size of a contiguous run of rows sent without copying. Shorter ones are copied together: a write of many
/// small pieces costs more than copying them within the cache.
const SHARE_BYTES: usize = 32 << 10;
/// Approximate maximum size of a piece sent without copying.
const RUN_BYTES: usize = 1 << 20;
/// Copied rows are sent at this size.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes to send.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    head: Bytes,
    body: Body,
    tail: Bytes,
    len: usize,
    rows: usize,
    matching: usize,
}

#[derive(Clone, Debug)]
enum Body {
    /// Pre-encoded rows in this form.
    Rows(Selection, Format),
    Bytes(Bytes),
}

/// Makes head and tail around the rows, from their bytes, their number, and the number of matches.
pub(crate) type HeadAndTail = fn(usize, usize, usize) -> (Bytes, Bytes);

impl Answer {
    /// An answer of pre-encoded rows; `None` if they are not encoded in this form.
    pub(crate) fn of_ready(selection: Selection, format: Format, head_and_tail: HeadAndTail) -> Option<Self> {
        selection.table().encoded(format)?;
        let (rows, matching) = (selection.rows().len(), selection.matching());
        let (head, tail, len) = head_tail_and_len(&selection, format, head_and_tail);
        Some(Self { head, body: Body::Rows(selection, format), tail, len, rows, matching })
    }

    /// An answer of these bytes.
    pub(crate) fn of_bytes(bytes: Bytes, rows: usize, matching: usize) -> Self {
        let len = bytes.len();
        Self { head: Bytes::new(), body: Body::Bytes(bytes), tail: Bytes::new(), len, rows, matching }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn matching(&self) -> usize {
        self.matching
    }

    /// True if its rows must be collected from several places.
    pub(crate) fn is_scattered(&self) -> bool {
        let Body::Rows(selection, _) = &self.body else { return false };
        match selection.rows() {
            [first, .., last] => (last - first) as usize + 1 > self.rows,
            _ => false,
        }
    }

    /// The bytes in one piece.
    pub(crate) fn collected(self) -> Bytes {
        let mut whole = Vec::with_capacity(self.len);
        self.chunks().for_each(|chunk| whole.extend_from_slice(&chunk));
        whole.into()
    }

    /// The bytes, in pieces that are worth a separate write.
    pub(crate) fn chunks(self) -> Chunks {
        Chunks { answer: self, next_row: 0, stage: Stage::Head, waiting: None }
    }
}

/// Head and tail around the rows, and the total length.
pub(crate) fn head_tail_and_len(
    selection: &Selection,
    format: Format,
    head_and_tail: HeadAndTail,
) -> (Bytes, Bytes, usize) {
    let (table, rows) = (selection.table(), selection.rows());
    let all: usize = rows.iter().map(|row| table.row_bytes(*row, format)).sum();
    let body = if rows.is_empty() { 0 } else { all - format.separator_bytes() };
    let (head, tail) = head_and_tail(body, rows.len(), selection.matching());
    let len = head.len() + body + tail.len();
    (head, tail, len)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Body,
    Over,
}

/// The bytes of an answer, piece by piece.
#[derive(Debug)]
pub(crate) struct Chunks {
    answer: Answer,
    next_row: usize,
    stage: Stage,
    /// A run that was found while another chunk was filled.
    waiting: Option<Span>,
}

impl Chunks {
    /// The contiguous run from the next row on.
    fn run(&mut self, encoded: &Encoded, rows: &[u32], format: Format) -> Option<Span> {
        if let Some(waiting) = self.waiting.take() {
            return Some(waiting);
        }
        let mut run = encoded.span(*rows.get(self.next_row)?);
        self.next_row += 1;
        while run.len() < RUN_BYTES
            && let Some(next) = rows.get(self.next_row)
            && run.join(encoded.span(*next))
        {
            self.next_row += 1;
        }
        if self.next_row == rows.len() {
            run.cut(format.separator_bytes());
        }
        Some(run)
    }

    /// Copies rows to `chunk` until it is full, or until a run follows that is better shared.
    fn gather(&mut self, selection: &Selection, format: Format, chunk: &mut Vec<u8>) -> Option<Bytes> {
        let encoded = selection.table().encoded(format)?;
        while chunk.len() < CHUNK_BYTES {
            let Some(run) = self.run(encoded, selection.rows(), format) else {
                self.stage = Stage::Over;
                chunk.extend_from_slice(&self.answer.tail);
                return None;
            };
            if run.len() >= SHARE_BYTES {
                if chunk.is_empty() {
                    return Some(encoded.share(run));
                }
                self.waiting = Some(run);
                return None;
            }
            if chunk.capacity() == 0 {
                chunk.reserve_exact(CHUNK_BYTES + SHARE_BYTES);
            }
            chunk.extend_from_slice(encoded.bytes_at(run));
        }
        None
    }
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.stage == Stage::Over {
            return None;
        }
        let mut chunk = Vec::new();
        if self.stage == Stage::Head {
            self.stage = Stage::Body;
            if !self.answer.head.is_empty() {
                chunk.reserve_exact(CHUNK_BYTES + SHARE_BYTES);
                chunk.extend_from_slice(&self.answer.head);
            }
        }
        match self.answer.body.clone() {
            Body::Bytes(bytes) => {
                self.stage = Stage::Over;
                Some(bytes)
            }
            Body::Rows(selection, format) => {
                let shared = self.gather(&selection, format, &mut chunk);
                shared.or_else(|| (!chunk.is_empty()).then(|| chunk.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{load, query::Query, settings::Settings};

    const ROWS: usize = 20_000;

    /// Values of 100 bytes; every row has `x` in column `a`, and every third `y` in column `b`.
    fn answer(column: usize, value: &str, format: Format) -> Answer {
        let rows = (0..ROWS).map(|row| format!("x,{},{row:0100}\n", if row % 3 == 0 { 'y' } else { 'z' }));
        let file = "a,b,c\n".to_owned() + &rows.collect::<Vec<_>>().concat();
        let table = load::load(file.as_bytes(), 0, &Settings::default()).unwrap();
        let query = Query { value: value.to_owned(), ..Query::default() };
        let head_and_tail: HeadAndTail = |_, _, _| (Bytes::from_static(b"<"), Bytes::from_static(b">"));
        Answer::of_ready(Selection::indexed(Arc::new(table), column, &query), format, head_and_tail).unwrap()
    }

    /// The rows, encoded one by one.
    fn plain(answer: &Answer) -> Vec<u8> {
        let Body::Rows(selection, format) = &answer.body else { panic!("rows that lie ready") };
        let mut bytes = b"<".to_vec();
        for row in selection.rows() {
            selection.table().encoder().row(*format, selection.table().values(*row), &mut bytes);
        }
        bytes.truncate(bytes.len() - format.separator_bytes());
        bytes.push(b'>');
        bytes
    }

    #[test]
    fn chunks_are_the_rows_in_order_and_worth_a_write_each() {
        for format in Format::ALL {
            for (column, value) in [(0, "x"), (1, "y")] {
                let answer = answer(column, value, format);
                let (wanted, length) = (plain(&answer), answer.len());
                let chunks: Vec<Bytes> = answer.chunks().collect();
                assert_eq!(length, wanted.len());
                assert!(chunks.concat() == wanted, "{format:?} {value}");
                assert!(chunks.len() <= length / CHUNK_BYTES + 3, "{} chunks of {length} bytes", chunks.len());
            }
        }
    }

    #[test]
    fn rows_that_lie_together_are_sent_from_where_they_lie() {
        let answer = answer(0, "x", Format::Protobuf);
        let Body::Rows(selection, format) = answer.body.clone() else { panic!("rows that lie ready") };
        let encoded = selection.table().encoded(format).unwrap();
        let block = encoded.bytes_at(encoded.span(0)).as_ptr();
        let chunks: Vec<Bytes> = answer.chunks().collect();
        let mut offset = 0;
        for chunk in &chunks[1..chunks.len() - 1] {
            assert_eq!(chunk.as_ptr(), block.wrapping_add(offset));
            offset += chunk.len();
        }
        assert!(offset > (1 << 20), "{offset}");
    }
}
