//! Every row in one form, concatenated in few large buffers that answers share.

use bytes::Bytes;

/// A buffer that exceeds this gets no further row; one row may be longer.
const BLOCK_BYTES: usize = 32 << 20;
/// Room for the row that crosses that line.
const MARGIN_BYTES: usize = 1 << 20;

/// Encoded rows under construction.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    blocks: Vec<Bytes>,
    open: Vec<u8>,
    starts: Vec<u64>,
    bytes: usize,
}

/// A block's number in the high bits, an offset in it in the low bits.
fn start(block: usize, offset: usize) -> u64 {
    (block as u64) << 32 | offset as u64
}

impl Growing {
    /// Adds a row, which `write` appends to its argument. Rows are shorter than 4 GiB: rows of a file are bounded, and
    /// no form has more than six times their bytes.
    pub(crate) fn row(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.open.len() >= BLOCK_BYTES {
            self.close();
        }
        if self.open.capacity() == 0 {
            self.open.reserve_exact(BLOCK_BYTES + MARGIN_BYTES);
        }
        let before = self.open.len();
        self.starts.push(start(self.blocks.len(), before));
        write(&mut self.open);
        self.bytes += self.open.len() - before;
    }

    fn close(&mut self) {
        self.blocks.push(std::mem::take(&mut self.open).into());
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.starts.capacity() * size_of::<u64>()
    }

    pub(crate) fn finish(mut self) -> Encoded {
        self.open.shrink_to_fit();
        self.starts.push(start(self.blocks.len(), self.open.len()));
        self.close();
        self.starts.shrink_to_fit();
        Encoded { blocks: self.blocks, starts: self.starts, bytes: self.bytes }
    }
}

/// All rows of a file in one form.
#[derive(Debug)]
pub(crate) struct Encoded {
    blocks: Vec<Bytes>,
    /// Start of each row, and end of the last one.
    starts: Vec<u64>,
    bytes: usize,
}

/// Location of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    block: usize,
    start: usize,
    end: usize,
}

impl Place {
    pub(crate) fn len(self) -> usize {
        self.end - self.start
    }

    /// Extends the range by a directly following one; false if `next` is elsewhere.
    pub(crate) fn join(&mut self, next: Self) -> bool {
        let joins = self.block == next.block && self.end == next.start;
        if joins {
            self.end = next.end;
        }
        joins
    }

    /// Shortens the range at its end.
    pub(crate) fn cut(&mut self, bytes: usize) {
        self.end -= bytes;
    }
}

impl Encoded {
    #[expect(clippy::cast_possible_truncation, reason = "blocks are counted and measured in 32 bits each")]
    pub(crate) fn place(&self, row: u32) -> Place {
        let (from, to) = (self.starts[row as usize], self.starts[row as usize + 1]);
        let (block, start) = ((from >> 32) as usize, from as u32 as usize);
        let end = if to >> 32 == from >> 32 { to as u32 as usize } else { self.blocks[block].len() };
        Place { block, start, end }
    }

    /// The bytes, borrowed.
    pub(crate) fn bytes_at(&self, place: Place) -> &[u8] {
        &self.blocks[place.block][place.start..place.end]
    }

    /// The bytes, shared.
    pub(crate) fn share(&self, place: Place) -> Bytes {
        self.blocks[place.block].slice(place.start..place.end)
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.starts.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_in_its_block_and_neighbours_join_up_to_the_blocks_end() {
        let mut growing = Growing::default();
        let lengths = [10usize, 0, BLOCK_BYTES - 10, 7, 3 * BLOCK_BYTES, 5, 0];
        for (number, length) in (0u8..).zip(lengths) {
            growing.row(|out| out.resize(out.len() + length, number));
        }
        let encoded = growing.finish();
        for (number, length) in (0u8..).zip(lengths) {
            let bytes = encoded.bytes_at(encoded.place(number.into()));
            assert!(bytes.len() == length && bytes.iter().all(|byte| *byte == number), "{number}: {}", bytes.len());
            assert_eq!(encoded.share(encoded.place(number.into())), bytes);
        }
        let mut run = encoded.place(0);
        assert!(run.join(encoded.place(1)) && run.join(encoded.place(2)) && !run.join(encoded.place(3)));
        assert_eq!(run.len(), BLOCK_BYTES);
        assert!(encoded.bytes() >= lengths.iter().sum());
    }
}
