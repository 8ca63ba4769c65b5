//! Length prefixes. Each gets one byte; longer ones are widened in one pass at the end, so deep nesting moves no byte
//! twice.

use crate::wire::{put_varint, varint_len};

/// The prefixes that need more than one byte.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    /// Position and value of each.
    wide: Vec<(usize, u64)>,
    /// Bytes that all of them still lack.
    missing: usize,
}

/// A length prefix that is not filled in yet.
#[derive(Debug)]
pub(super) struct Open {
    at: usize,
    missing_before: usize,
}

impl Lengths {
    #[inline]
    pub(super) fn open(&mut self, out: &mut Vec<u8>) -> Open {
        let at = out.len();
        out.push(0);
        Open { at, missing_before: self.missing }
    }

    /// Fills in the length of everything appended since `open`.
    #[inline]
    pub(super) fn close(&mut self, open: &Open, out: &mut [u8]) {
        let length = out.len() - open.at - 1 + self.missing - open.missing_before;
        match u8::try_from(length) {
            Ok(short) if short < 0x80 => out[open.at] = short,
            _ => {
                self.wide.push((open.at, length as u64));
                self.missing += varint_len(length as u64) - 1;
            }
        }
    }

    /// Widens the long prefixes. `out` must still hold everything that was closed.
    #[inline]
    pub(super) fn finish(self, out: &mut Vec<u8>) {
        if self.missing > 0 {
            self.widen(out);
        }
    }

    fn widen(mut self, out: &mut Vec<u8>) {
        self.wide.sort_unstable();
        let mut from = out.len();
        let mut to = from + self.missing;
        out.resize(to, 0);
        let mut length = Vec::with_capacity(10);
        for (at, value) in self.wide.into_iter().rev() {
            let moved = from - (at + 1);
            out.copy_within(at + 1..from, to - moved);
            length.clear();
            put_varint(value, &mut length);
            to -= moved + length.len();
            out[to..to + length.len()].copy_from_slice(&length);
            from = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lengths_inside_long_lengths_count_each_other() {
        let (mut lengths, mut out) = (Lengths::default(), vec![7]);
        let outer = lengths.open(&mut out);
        let inner = lengths.open(&mut out);
        out.extend([1; 200]);
        lengths.close(&inner, &mut out);
        let short = lengths.open(&mut out);
        out.extend([2; 127]);
        lengths.close(&short, &mut out);
        lengths.close(&outer, &mut out);
        lengths.finish(&mut out);
        // 330 = 2 + 200 + 1 + 127
        let wanted = [&[7, 0xca, 2, 0xc8, 1][..], &[1; 200], &[127], &[2; 127]].concat();
        assert_eq!(out, wanted);
    }
}
