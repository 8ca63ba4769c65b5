//! XXH3 with 64 bits and seed 0: of single names, and over all messages or values of a game.
//!
//! Algorithm: XXH3 of the xxHash specification, <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>.

use std::fmt;
use std::hash::Hasher as _;

use twox_hash::XxHash3_64;

/// XXH3-64 of `bytes`.
#[inline]
pub fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Incremental XXH3-64; independent of how bytes are split.
#[derive(Clone, Default)]
pub struct Checksum {
    state: XxHash3_64,
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checksum({:016x})", self.value())
    }
}

impl Checksum {
    /// Adds bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.state.write(bytes);
    }

    /// Adds a number as 8 bytes, little-endian.
    #[inline]
    pub fn add_number(&mut self, number: u64) {
        self.add(&number.to_le_bytes());
    }

    /// The hash of everything added.
    pub fn value(&self) -> u64 {
        self.state.finish()
    }

    /// Resets the checksum.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// One side's two checksums of a game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Checksum over the client's messages: each name and count.
    pub client: u64,
    /// Checksum over the server's values.
    pub server: u64,
}

impl Sums {
    /// Checksums of a game without messages.
    pub fn of_nothing() -> Self {
        let empty = hash(&[]);
        Self { client: empty, server: empty }
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {:016x} server {:016x}", self.client, self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // xxhash.xxh3_64_hexdigest of Python's xxhash: b"", b"a" and bytes(i * 7 % 256 for i in range(10000)).
    #[test]
    fn hashes_are_those_of_another_implementation() {
        let long: Vec<u8> = (0..10_000_usize).map(|i| u8::try_from(i * 7 % 256).unwrap()).collect();
        let cases = [(&b""[..], EMPTY), (b"a", LETTER), (&long, LONG)];
        for (bytes, expected) in cases {
            assert_eq!(hash(bytes), expected);
            for piece in [1, 8, 345, 2048, 2049, 4096, 9999] {
                let mut checksum = Checksum::default();
                bytes.chunks(piece).for_each(|part| checksum.add(part));
                assert_eq!(checksum.value(), expected, "in pieces of {piece}");
                checksum.clear();
                assert_eq!(checksum.value(), EMPTY);
            }
        }
    }

    const EMPTY: u64 = 0x2d06_8005_38d3_94c2;
    const LETTER: u64 = 0xe6c6_32b6_1e96_4e1f;
    const LONG: u64 = 0x09ea_754d_7983_b623;
}
