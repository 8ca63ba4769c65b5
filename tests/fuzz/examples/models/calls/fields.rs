//! A client's header blocks (RFC 7541), in every form of the format.

use std::collections::VecDeque;

use super::call::Fields;
use crate::random::Random;

/// Strings in Huffman code, from RFC 7541 appendix C.
const HUFFMAN: [(&[u8], &[u8]); 3] = [
    (b"www.example.com", &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]),
    (b"custom-key", &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f]),
    (b"custom-value", &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf]),
];
/// Entries of the static table that requests use, whole or by name.
const WHOLE: [(&[u8], &[u8], usize); 2] = [(b":method", b"POST", 3), (b":scheme", b"http", 6)];
const NAMES: [(&[u8], usize); 5] =
    [(b":authority", 1), (b":method", 2), (b":path", 4), (b"content-type", 31), (b"content-encoding", 26)];
const STATIC: usize = 61;
const TABLE_MAX: usize = 4096;

/// The client's side of the dynamic table.
pub struct Encoder {
    table: VecDeque<(Vec<u8>, Vec<u8>)>,
    bytes_max: usize,
}

fn integer(first: u8, bits: u32, mut value: usize, out: &mut Vec<u8>) {
    let most = (1 << bits) - 1;
    if value < most {
        return out.push(first | value as u8);
    }
    out.push(first | most as u8);
    value -= most;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn string(random: &mut Random, text: &[u8], out: &mut Vec<u8>) {
    match HUFFMAN.iter().find(|(known, _)| *known == text) {
        Some((_, code)) if random.one_in(2) => {
            integer(0x80, 7, code.len(), out);
            out.extend(*code);
        }
        _ => {
            integer(0, 7, text.len(), out);
            out.extend(text);
        }
    }
}

impl Encoder {
    pub fn new() -> Self {
        Self { table: VecDeque::new(), bytes_max: TABLE_MAX }
    }

    fn evict(&mut self) {
        let size = |table: &VecDeque<(Vec<u8>, Vec<u8>)>| -> usize {
            table.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
        };
        while size(&self.table) > self.bytes_max {
            self.table.pop_back();
        }
    }

    pub fn block(&mut self, random: &mut Random, fields: &Fields) -> Vec<u8> {
        let mut out = Vec::new();
        if random.one_in(6) {
            for _ in 0..=random.below(2) {
                self.bytes_max = random.pick(&[0, 60, 200, 1000, TABLE_MAX]);
                integer(0x20, 5, self.bytes_max, &mut out);
                self.evict();
            }
        }
        for (name, value) in fields {
            self.field(random, name, value, &mut out);
        }
        out
    }

    fn field(&mut self, random: &mut Random, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let dynamic = self.table.iter().position(|(known, text)| known == name && text == value);
        let whole = WHOLE.iter().find(|(known, text, _)| *known == name && *text == value).map(|known| known.2);
        let whole = dynamic.map(|place| place + STATIC + 1).or(whole);
        if let Some(index) = whole.filter(|_| !random.one_in(5)) {
            return integer(0x80, 7, index, out);
        }
        let named = self.table.iter().position(|(known, _)| known == name).map(|place| place + STATIC + 1);
        let named = named.or_else(|| NAMES.iter().find(|(known, _)| *known == name).map(|known| known.1));
        let named = named.filter(|_| !random.one_in(5)).unwrap_or(0);
        // With indexing, without it, and never.
        let (first, bits) = random.pick(&[(0x40, 6), (0x40, 6), (0, 4), (0x10, 4)]);
        integer(first, bits, named, out);
        if named == 0 {
            string(random, name, out);
        }
        string(random, value, out);
        if bits == 6 {
            self.table.push_front((name.into(), value.into()));
            self.evict();
        }
    }
}
