//! Protobuf's wire format, for services that read messages in place or write them from parts.
//!
//! The writing functions take field numbers up to 15.
//!
//! Implements: protobuf's "Encoding".

use std::fmt;

const VARINT: u8 = 0;
const EIGHT_BYTES: u8 = 1;
const LENGTH: u8 = 2;
const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const FOUR_BYTES: u8 = 5;

/// Nesting limit of groups, the same as protobuf's own decoders'.
const GROUPS_MAX: usize = 100;

/// Decoding error of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

const CUT: Malformed = Malformed("it ends inside a field");

/// Value of a field, borrowed from the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A varint.
    Number(u64),
    /// A fixed 64-bit value, little-endian.
    Eight(u64),
    /// A length-delimited value: text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
    /// The fields of a group.
    Group(&'a [u8]),
    /// A fixed 32-bit value, little-endian.
    Four(u32),
}

/// Iterator over the fields of an encoded message, in order; ends after an error.
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Iterates over the fields of `message`.
    #[inline]
    pub fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        if let Some((byte @ 0..0x80, rest)) = self.0.split_first() {
            self.0 = rest;
            return Ok(u64::from(*byte));
        }
        self.long_varint()
    }

    /// Out of line, so that the short form is small enough to be inlined.
    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(CUT)?;
            self.0 = rest;
            // The tenth byte holds one bit; extra bits are ignored, as in protobuf's reference decoder.
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if *byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed("a number has more than ten bytes"))
    }

    #[inline]
    pub(crate) fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(CUT)?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// Reads a tag: field number and wire type.
    #[inline]
    fn key(&mut self) -> Result<(u64, u8), Malformed> {
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed("a field has a number above 536870911"))?;
        if key >> 3 == 0 {
            Err(Malformed("a field has the number 0"))
        } else {
            Ok((u64::from(key >> 3), key.to_le_bytes()[0] & 7))
        }
    }

    #[inline]
    fn field(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        let (number, wire_type) = self.key()?;
        Ok((number, self.value(number, wire_type, GROUPS_MAX)?))
    }

    /// Like [`Fields::field`]; an error ends the iteration.
    #[inline(never)]
    fn any_field(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        self.field().inspect_err(|_| self.0 = &[])
    }

    #[inline]
    fn value(&mut self, number: u64, wire_type: u8, groups: usize) -> Result<Value<'a>, Malformed> {
        Ok(match wire_type {
            VARINT => Value::Number(self.varint()?),
            EIGHT_BYTES => Value::Eight(u64::from_le_bytes(self.chunk()?)),
            LENGTH => {
                let length = usize::try_from(self.varint()?).map_err(|_| CUT)?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            OPEN => Value::Group(self.group(number, groups)?),
            FOUR_BYTES => Value::Four(u32::from_le_bytes(self.chunk()?)),
            CLOSE => return Err(Malformed("a group ends that has not begun")),
            _ => return Err(Malformed("a field has a type that does not exist")),
        })
    }

    /// Reads up to the end of the group. Out of line, as few contracts have groups.
    #[inline(never)]
    fn group(&mut self, group: u64, groups: usize) -> Result<&'a [u8], Malformed> {
        let groups = groups.checked_sub(1).ok_or(Malformed("too many groups lie inside each other"))?;
        let whole = self.0;
        loop {
            let left = self.0.len();
            match self.key()? {
                (number, CLOSE) if number == group => return Ok(&whole[..whole.len() - left]),
                (number, wire_type) => self.value(number, wire_type, groups)?,
            };
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // Fields up to 15 with a small number or a short text, the most common, are read inline.
        if let [key @ 8..0x80, number @ 0..0x80, ref rest @ ..] = *self.0 {
            if key & 7 == VARINT {
                self.0 = rest;
                return Some(Ok((u64::from(key >> 3), Value::Number(u64::from(number)))));
            }
            if key & 7 == LENGTH
                && let Some((bytes, rest)) = rest.split_at_checked(usize::from(number))
            {
                self.0 = rest;
                return Some(Ok((u64::from(key >> 3), Value::Bytes(bytes))));
            }
        }
        if self.0.is_empty() { None } else { Some(self.any_field()) }
    }
}

const fn key(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

#[inline]
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Length of a varint: one byte for each seven bits.
#[inline]
pub(crate) fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Appends a number; omits 0, as a field without presence requires.
#[inline]
pub fn put_number(field: u8, number: u64, out: &mut Vec<u8>) {
    if number != 0 {
        out.push(key(field, VARINT));
        put_varint(number, out);
    }
}

/// Bytes that [`put_number`] appends.
#[inline]
pub fn number_len(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + varint_len(number) }
}

/// Appends the tag and length that precede `length` bytes of text, bytes or a message.
#[inline]
pub fn put_length(field: u8, length: usize, out: &mut Vec<u8>) {
    out.push(key(field, LENGTH));
    put_varint(length as u64, out);
}

/// Encoded length of a text, bytes or message field of `length` bytes.
#[inline]
pub fn delimited_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

/// Appends text, bytes or a message, even if empty.
#[inline]
pub fn put_delimited(field: u8, bytes: &[u8], out: &mut Vec<u8>) {
    put_length(field, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Appends text or bytes; omits empty ones, as a field without presence requires.
#[inline]
pub fn put_bytes(field: u8, bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        put_delimited(field, bytes, out);
    }
}

/// Bytes that [`put_bytes`] appends for `length` bytes.
#[inline]
pub fn bytes_len(length: usize) -> usize {
    if length == 0 { 0 } else { delimited_len(length) }
}

/// Appends a double, even if it is 0.
#[inline]
pub fn put_double(field: u8, number: f64, out: &mut Vec<u8>) {
    out.push(key(field, EIGHT_BYTES));
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends packed fixed 64-bit numbers; omits an empty list.
pub fn put_packed(field: u8, numbers: &[u64], out: &mut Vec<u8>) {
    if !numbers.is_empty() {
        put_length(field, numbers.len() * 8, out);
        out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_has_the_length_that_was_told() {
        for number in (0..64).flat_map(|shift| [1u64 << shift, (1 << shift) - 1]).chain([u64::MAX]) {
            let mut out = Vec::new();
            put_number(15, number, &mut out);
            assert_eq!(out.len(), number_len(number));
            let read: Vec<_> = Fields::of(&out).collect();
            let wanted = [Ok((15, Value::Number(number)))];
            assert_eq!(read, if number == 0 { &[][..] } else { &wanted });
        }
        for length in [0, 1, 127, 128, 20_000] {
            let (bytes, mut out) = (vec![7; length], Vec::new());
            put_bytes(1, &bytes, &mut out);
            assert_eq!(out.len(), bytes_len(length));
            put_delimited(2, &bytes, &mut out);
            assert_eq!(out.len(), bytes_len(length) + delimited_len(length));
            let read: Vec<_> = Fields::of(&out).map(Result::unwrap).collect();
            let wanted = [(1, Value::Bytes(&bytes)), (2, Value::Bytes(&bytes))];
            assert_eq!(read, wanted[usize::from(length == 0)..]);
        }
        let mut out = Vec::new();
        put_double(3, 0.5, &mut out);
        put_packed(4, &[1, u64::MAX], &mut out);
        put_packed(5, &[], &mut out);
        let packed = [&1u64.to_le_bytes()[..], &[0xff; 8]].concat();
        let read: Vec<_> = Fields::of(&out).map(Result::unwrap).collect();
        assert_eq!(read, [(3, Value::Eight(0.5f64.to_bits())), (4, Value::Bytes(&packed))]);
    }

    #[test]
    fn a_group_is_its_fields_however_deep_groups_lie_in_it() {
        // Group 1 with a number, group 2 with a group 1, and four bytes; then a number.
        let group = [0x08, 1, 0x13, 0x0b, 0x0c, 0x14, 0x1d, 1, 2, 3, 4];
        let bytes = [&[0x0b][..], &group, &[0x0c, 0x20, 7]].concat();
        let read: Vec<_> = Fields::of(&bytes).map(Result::unwrap).collect();
        assert_eq!(read, [(1, Value::Group(&group)), (4, Value::Number(7))]);
        for (depth, is_read) in [(GROUPS_MAX, true), (GROUPS_MAX + 1, false)] {
            let bytes = [vec![0x0b; depth], vec![0x0c; depth]].concat();
            assert_eq!(Fields::of(&bytes).all(|field| field.is_ok()), is_read, "{depth}");
        }
    }

    #[test]
    fn bytes_that_are_no_message_end_with_an_error() {
        let groups: [&[u8]; 4] = [&[0x0b], &[0x0c], &[0x0b, 0x14], &[0x0b, 0x13, 0x0c, 0x14]];
        let large_number: &[u8] = &[0x88, 0x80, 0x80, 0x80, 0x10, 0];
        for bytes in [&[0x08][..], &[0x0a, 5, 1], &[0x09, 1], &[0x0d, 1, 2, 3], &[0x02, 0], &[0x0e], &[0xff; 11]]
            .into_iter()
            .chain(groups)
            .chain([large_number])
        {
            let read: Vec<_> = Fields::of(bytes).collect();
            assert!(matches!(read[..], [Err(_)]), "{bytes:?}: {read:?}");
        }
    }
}
