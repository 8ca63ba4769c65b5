//! Integers with a prefix and Huffman-coded strings (RFC 7541 section 5 and appendix B).
//!
//! The Huffman code is canonical: the lengths define it. Decoding walks a table four bits at a time; the shortest code has
//! five bits, so a step yields one symbol at most.

use crate::error::ConnectionError;

/// Largest length or index we accept; a longer one is an attack or an error.
const VALUE_MAX: usize = 1 << 24;

/// Reads an integer whose first byte shares its high bits with other flags.
#[inline]
pub(crate) fn read_integer(input: &mut &[u8], prefix_bits: u32) -> Result<usize, ConnectionError> {
    let mask = (1usize << prefix_bits) - 1;
    let Some((&first, rest)) = input.split_first() else {
        return Err(ConnectionError::compression("header block ends inside an integer"));
    };
    *input = rest;
    let value = usize::from(first) & mask;
    if value < mask { Ok(value) } else { read_integer_rest(input, value) }
}

fn read_integer_rest(input: &mut &[u8], mut value: usize) -> Result<usize, ConnectionError> {
    for shift in [0, 7, 14, 21] {
        let Some((&byte, rest)) = input.split_first() else {
            return Err(ConnectionError::compression("header block ends inside an integer"));
        };
        *input = rest;
        value += usize::from(byte & 0x7f) << shift;
        if value > VALUE_MAX {
            break;
        }
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ConnectionError::compression("integer in a header block is too large"))
}

/// Writes an integer; `pattern` holds the representation's high bits.
pub(crate) fn write_integer(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, mut value: usize) {
    let mask = (1usize << prefix_bits) - 1;
    if value < mask {
        out.push(pattern | low_byte(value));
        return;
    }
    out.push(pattern | low_byte(mask));
    value -= mask;
    while value >= 0x80 {
        out.push(low_byte(value & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

fn low_byte(value: usize) -> u8 {
    value.to_le_bytes()[0]
}

const SYMBOLS: usize = 257;
const END_OF_STRING: usize = 256;

/// Code lengths in bits, by symbol; the last is the end-of-string symbol.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const CODES: [u32; SYMBOLS] = canonical_codes();
static DECODE: [[Step; 16]; 256] = decode_table();

const fn canonical_codes() -> [u32; SYMBOLS] {
    let mut codes = [0; SYMBOLS];
    let mut next = 0u32;
    let mut length = 1u8;
    while length <= 30 {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] == length {
                codes[symbol] = next;
                next += 1;
            }
            symbol += 1;
        }
        next <<= 1;
        length += 1;
    }
    codes
}

/// Decoder transition on four more bits.
#[derive(Clone, Copy)]
struct Step {
    next: u8,
    symbol: u8,
    has_symbol: bool,
    /// True if the bits since the last symbol may be padding: at most seven, all ones.
    may_end: bool,
    /// True if the bits contain the end-of-string symbol, which must never be sent.
    invalid: bool,
}

const LEAF: u16 = 0x8000;

/// The code as a binary tree: numbered inner nodes, marked leaves.
const fn tree() -> [[u16; 2]; 256] {
    let mut nodes = [[0u16; 2]; 256];
    let mut used = 1u16;
    let mut symbol = 0u16;
    while (symbol as usize) < SYMBOLS {
        let code = CODES[symbol as usize];
        let mut bit = LENGTHS[symbol as usize];
        let mut node = 0usize;
        while bit > 1 {
            bit -= 1;
            let side = (code >> bit & 1) as usize;
            if nodes[node][side] == 0 {
                nodes[node][side] = used;
                used += 1;
            }
            node = nodes[node][side] as usize;
        }
        nodes[node][(code & 1) as usize] = LEAF | symbol;
        symbol += 1;
    }
    nodes
}

#[expect(clippy::large_stack_arrays, reason = "evaluated by the compiler")]
#[expect(clippy::cast_possible_truncation, reason = "const fn cannot use TryFrom; there are 256 nodes and symbols")]
const fn decode_table() -> [[Step; 16]; 256] {
    let nodes = tree();
    let ones = ones_path(&nodes);
    let blank = Step { next: 0, symbol: 0, has_symbol: false, may_end: false, invalid: false };
    let mut table = [[blank; 16]; 256];
    let mut state = 0;
    while state < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            let mut step = blank;
            let mut node = state;
            let mut bit = 4;
            while bit > 0 && !step.invalid {
                bit -= 1;
                let child = nodes[node][nibble >> bit & 1];
                if child & LEAF == 0 {
                    node = child as usize;
                } else if (child ^ LEAF) as usize == END_OF_STRING {
                    step.invalid = true;
                } else {
                    step.symbol = (child ^ LEAF) as u8;
                    step.has_symbol = true;
                    node = 0;
                }
            }
            step.next = node as u8;
            step.may_end = ones[node];
            table[state][nibble] = step;
            nibble += 1;
        }
        state += 1;
    }
    table
}

/// Nodes that up to seven one-bits reach from the root.
const fn ones_path(nodes: &[[u16; 2]; 256]) -> [bool; 256] {
    let mut on_path = [false; 256];
    let mut node = 0;
    let mut bits = 0;
    while bits <= 7 {
        on_path[node] = true;
        node = nodes[node][1] as usize;
        bits += 1;
    }
    on_path
}

/// Appends the decoded string.
pub(crate) fn decode_huffman(input: &[u8], out: &mut Vec<u8>) -> Result<(), ConnectionError> {
    let mut state = 0u8;
    let mut may_end = true;
    for &byte in input {
        for nibble in [byte >> 4, byte & 15] {
            let step = DECODE[usize::from(state)][usize::from(nibble)];
            if step.invalid {
                return Err(ConnectionError::compression("end-of-string symbol in a header"));
            }
            if step.has_symbol {
                out.push(step.symbol);
            }
            state = step.next;
            may_end = step.may_end;
        }
    }
    if may_end { Ok(()) } else { Err(ConnectionError::compression("bad Huffman padding")) }
}

/// Number of bytes that `encode` writes.
pub(crate) fn huffman_len(input: &[u8]) -> usize {
    let bits: usize = input.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

pub(crate) fn encode_huffman(input: &[u8], out: &mut Vec<u8>) {
    let mut pending = 0u64;
    let mut bits = 0u32;
    for &byte in input {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        pending = pending << length | u64::from(CODES[usize::from(byte)]);
        bits += length;
        while bits >= 8 {
            bits -= 8;
            out.push((pending >> bits).to_le_bytes()[0]);
        }
    }
    if bits > 0 {
        out.push((pending << (8 - bits)).to_le_bytes()[0] | (0xff >> bits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7541 appendix C.1.
    #[test]
    fn integers_of_the_rfc_survive_a_round_trip() {
        for (value, prefix, bytes) in [(10, 5, &[0b01010][..]), (1337, 5, &[31, 154, 10]), (42, 8, &[42])] {
            let mut out = Vec::new();
            write_integer(&mut out, 0, prefix, value);
            assert_eq!(out, bytes);
            assert_eq!(read_integer(&mut &bytes[..], prefix).unwrap(), value);
        }
    }

    #[test]
    fn endless_and_cut_integers_are_errors() {
        assert!(read_integer(&mut &[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01][..], 7).is_err());
        assert!(read_integer(&mut &[0xff, 0xff, 0xff, 0xff, 0x7f][..], 7).is_err());
        assert!(read_integer(&mut &[0xff, 0x80][..], 7).is_err());
        assert!(read_integer(&mut &[][..], 7).is_err());
    }

    #[test]
    fn every_byte_survives_a_round_trip() {
        let all: Vec<u8> = (0..=255).collect();
        let mut coded = Vec::new();
        encode_huffman(&all, &mut coded);
        assert_eq!(coded.len(), huffman_len(&all));
        let mut plain = Vec::new();
        decode_huffman(&coded, &mut plain).unwrap();
        assert_eq!(plain, all);
    }

    #[test]
    fn padding_must_be_ones_and_shorter_than_a_byte() {
        let mut out = Vec::new();
        assert!(decode_huffman(&[0x1f], &mut out).is_ok(), "'a' then three ones");
        assert!(decode_huffman(&[0x18], &mut out).is_err(), "'a' then zeros");
        assert!(decode_huffman(&[0x1f, 0xff], &mut out).is_err(), "'a' then eleven ones");
        assert!(decode_huffman(&[0xff, 0xff, 0xff, 0xff], &mut out).is_err(), "the end-of-string symbol");
    }
}
