//! Buffered output: one contiguous buffer, with large bodies spliced in by reference, in wire order.
//!
//! Implements: RFC 9113 section 4.1 (frames leave whole and in order).

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Written bytes are cut off the buffer's front once there are this many.
const COMPACT_BYTES: usize = 64 * 1024;

/// Bytes for the peer, in order.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// Written prefix of `bytes`.
    written: usize,
    /// Spliced segments: each stands before the byte of `bytes` at its position.
    spliced: VecDeque<(usize, Bytes)>,
    spliced_bytes: usize,
}

impl Output {
    /// Number of bytes to write.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.written + self.spliced_bytes
    }

    /// True if there is nothing to write.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole output if nothing is spliced in: the common case, one plain write.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        self.spliced.is_empty().then(|| &self.bytes[self.written..])
    }

    /// Fills `slices` with the next bytes to write; returns how many slices were filled.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        let mut position = self.written;
        let mut add = |slice: &'a [u8]| {
            if !slice.is_empty() && filled < slices.len() {
                slices[filled] = IoSlice::new(slice);
                filled += 1;
            }
        };
        for (at, segment) in &self.spliced {
            add(&self.bytes[position..*at]);
            add(segment);
            position = *at;
        }
        add(&self.bytes[position..]);
        filled
    }

    /// Removes `count` written bytes.
    pub fn advance(&mut self, mut count: usize) {
        debug_assert!(count <= self.len(), "more was written than waited");
        while let Some((at, segment)) = self.spliced.front_mut() {
            let plain = *at - self.written;
            if count < plain {
                break;
            }
            count -= plain;
            self.written = *at;
            if count < segment.len() {
                segment.advance(count);
                self.spliced_bytes -= count;
                return;
            }
            count -= segment.len();
            self.spliced_bytes -= segment.len();
            self.spliced.pop_front();
        }
        self.written += count;
        self.compact();
    }

    fn compact(&mut self) {
        if self.written == self.bytes.len() && self.spliced.is_empty() {
            self.bytes.clear();
            self.written = 0;
        } else if self.written >= COMPACT_BYTES {
            self.bytes.drain(..self.written);
            for (at, _) in &mut self.spliced {
                *at -= self.written;
            }
            self.written = 0;
        }
    }

    /// Adopts an empty buffer's memory if this output is empty and has none of its own.
    pub fn borrow(&mut self, buffer: &mut Vec<u8>) {
        if self.is_empty() && self.bytes.capacity() == 0 && buffer.is_empty() {
            self.bytes = std::mem::take(buffer);
        }
    }

    /// Returns the output's memory, emptied, if nothing is left to write.
    pub fn give_back(&mut self) -> Option<Vec<u8>> {
        self.is_empty().then(|| std::mem::take(&mut self.bytes))
    }

    /// Frees memory after a burst; for idle connections.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
            self.spliced = VecDeque::new();
        }
    }

    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(crate) fn splice(&mut self, segment: Bytes) {
        self.spliced_bytes += segment.len();
        self.spliced.push_back((self.bytes.len(), segment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(output: &Output) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); 16];
        let filled = output.slices(&mut slices);
        slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn order_is_kept_however_the_writes_are_cut() {
        let expected = b"headBODYmidBODY2tail".to_vec();
        for step in 1..=expected.len() {
            let mut output = Output::default();
            output.buffer().extend_from_slice(b"head");
            output.splice(Bytes::from_static(b"BODY"));
            output.buffer().extend_from_slice(b"mid");
            output.splice(Bytes::from_static(b"BODY2"));
            output.buffer().extend_from_slice(b"tail");
            let mut written = Vec::new();
            while !output.is_empty() {
                let next = all(&output);
                let count = step.min(next.len());
                written.extend_from_slice(&next[..count]);
                output.advance(count);
            }
            assert_eq!(written, expected);
            assert_eq!(output.contiguous(), Some(&[][..]));
        }
    }

    #[test]
    fn written_prefix_is_cut_while_the_peer_never_catches_up() {
        let mut output = Output::default();
        for _ in 0..100 {
            output.buffer().extend_from_slice(&vec![1; COMPACT_BYTES]);
            output.splice(Bytes::from_static(b"x"));
            output.advance(COMPACT_BYTES);
        }
        assert!(output.bytes.capacity() <= 4 * COMPACT_BYTES);
        assert_eq!(output.len(), 100);
    }
}
