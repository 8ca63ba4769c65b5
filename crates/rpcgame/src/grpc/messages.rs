//! The contract's messages, read where they lie and written by hand. Must agree with what prost makes of them.

use prost::encoding::encode_varint;

use crate::number::{self, DIGITS_MAX};
use crate::refusal::{Field, Refusal};

const VARINT: u8 = 0;
const EIGHT_BYTES: u8 = 1;
const LENGTH: u8 = 2;
const FOUR_BYTES: u8 = 5;

const fn key(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

const CUT: Refusal = Refusal::Malformed("it ends inside a field");

/// A field as it lies in a message.
enum Value<'a> {
    Number(u64),
    Eight(u64),
    Bytes(&'a [u8]),
    Four,
}

#[inline]
fn varint(rest: &mut &[u8]) -> Result<u64, Refusal> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(CUT)?;
        *rest = after;
        // The tenth byte has room for one bit; what is beyond is dropped, as protobuf's own readers do.
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if *byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Refusal::Malformed("a number has more than ten bytes"))
}

/// Takes a field off the front.
#[inline]
fn field<'a>(rest: &mut &'a [u8]) -> Result<(u64, Value<'a>), Refusal> {
    let key = varint(rest)?;
    let number = key >> 3;
    if number == 0 {
        return Err(Refusal::Malformed("a field has the number 0"));
    }
    let value = match u8::try_from(key & 7).unwrap_or(0) {
        VARINT => Value::Number(varint(rest)?),
        EIGHT_BYTES => {
            let (bytes, after) = rest.split_first_chunk().ok_or(CUT)?;
            *rest = after;
            Value::Eight(u64::from_le_bytes(*bytes))
        }
        LENGTH => {
            let length = usize::try_from(varint(rest)?).map_err(|_| CUT)?;
            let (bytes, after) = rest.split_at_checked(length).ok_or(CUT)?;
            *rest = after;
            Value::Bytes(bytes)
        }
        FOUR_BYTES => {
            let (_, after) = rest.split_first_chunk::<4>().ok_or(CUT)?;
            *rest = after;
            Value::Four
        }
        _ => return Err(Refusal::Malformed("a field has a type that does not exist")),
    };
    Ok((number, value))
}

const WRONG_TYPE: Refusal = Refusal::Malformed("a field has another type than the contract says");

/// `TryRequest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try<'a> {
    /// From 1.
    pub serial: u64,
    /// Text.
    pub name: &'a [u8],
    /// Any number.
    pub count: u64,
}

impl<'a> Try<'a> {
    /// Reads and checks it, but for its turn.
    #[inline]
    pub fn read(mut bytes: &'a [u8], name_bytes_max: usize) -> Result<Self, Refusal> {
        let [mut serial, mut name, mut count] = [&[][..]; 3];
        while !bytes.is_empty() {
            match field(&mut bytes)? {
                (1, Value::Bytes(text)) => serial = text,
                (2, Value::Bytes(text)) => name = text,
                (3, Value::Bytes(text)) => count = text,
                (1..=3, _) => return Err(WRONG_TYPE),
                _ => {}
            }
        }
        check_name(name, name_bytes_max)?;
        if std::str::from_utf8(name).is_err() {
            return Err(Refusal::NotText);
        }
        let number = |field, text| number::parse(text).map_err(|fault| Refusal::Number { field, fault });
        Ok(Self { serial: number(Field::Serial, serial)?, name, count: number(Field::Count, count)? })
    }

    /// Appends its bytes.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        let room = &mut [0; DIGITS_MAX];
        put_bytes(1, number::format(self.serial, room), out);
        if !self.name.is_empty() {
            put_bytes(2, self.name, out);
        }
        put_bytes(3, number::format(self.count, room), out);
    }
}

#[inline]
fn check_name(name: &[u8], bytes_max: usize) -> Result<(), Refusal> {
    if name.len() > bytes_max {
        return Err(Refusal::NameTooLong { bytes: name.len(), bytes_max });
    }
    Ok(())
}

fn put_bytes(field: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(key(field, LENGTH));
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_packed(field: u8, numbers: &[u64], out: &mut Vec<u8>) {
    if !numbers.is_empty() {
        out.push(key(field, LENGTH));
        encode_varint(numbers.len() as u64 * 8, out);
        out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }
}

/// Bytes of a `TryResponse`: a key, a length and digits.
pub const TRY_RESPONSE_BYTES_MAX: usize = DIGITS_MAX + 2;

/// Writes a `TryResponse` and returns its bytes.
#[inline]
pub fn write_value(value: u64, room: &mut [u8; TRY_RESPONSE_BYTES_MAX]) -> &[u8] {
    let digits = &mut [0; DIGITS_MAX];
    let text = number::format(value, digits);
    room[0] = key(1, LENGTH);
    // At most twenty.
    room[1] = u8::try_from(text.len()).unwrap_or(0);
    room[2..2 + text.len()].copy_from_slice(text);
    &room[..2 + text.len()]
}

/// Reads a `TryResponse`.
#[inline]
pub fn read_value(mut bytes: &[u8]) -> Result<u64, Refusal> {
    let mut value = &[][..];
    while !bytes.is_empty() {
        match field(&mut bytes)? {
            (1, Value::Bytes(text)) => value = text,
            (1, _) => return Err(WRONG_TYPE),
            _ => {}
        }
    }
    number::parse(value).map_err(|fault| Refusal::Number { field: Field::Count, fault })
}

/// `PlayRequest`, with its messages still in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Play<'a> {
    /// The serial of the first message.
    pub first_serial: u64,
    /// Any bytes each.
    pub names: Vec<&'a [u8]>,
    /// One for each name.
    pub counts: Vec<u64>,
    /// The game ends with these messages.
    pub done: bool,
}

impl<'a> Play<'a> {
    /// Reads and checks a frame into buffers that were used before.
    pub fn read(mut bytes: &'a [u8], name_bytes_max: usize) -> Result<Self, Refusal> {
        let mut play = Self::default();
        while !bytes.is_empty() {
            match field(&mut bytes)? {
                (1, Value::Number(serial)) => play.first_serial = serial,
                (2, Value::Bytes(name)) => {
                    check_name(name, name_bytes_max)?;
                    play.names.push(name);
                }
                (3, Value::Bytes(packed)) => read_packed(packed, &mut play.counts)?,
                (3, Value::Eight(count)) => play.counts.push(count),
                (4, Value::Number(done)) => play.done = done != 0,
                (1..=4, _) => return Err(WRONG_TYPE),
                _ => {}
            }
        }
        let (names, counts) = (play.names.len(), play.counts.len());
        if names != counts {
            return Err(Refusal::Unpaired { names, counts });
        }
        Ok(play)
    }
}

fn read_packed(packed: &[u8], into: &mut Vec<u64>) -> Result<(), Refusal> {
    let (numbers, rest) = packed.as_chunks();
    if !rest.is_empty() {
        return Err(Refusal::Malformed("packed numbers have a length that is no multiple of 8"));
    }
    into.extend(numbers.iter().map(|number| u64::from_le_bytes(*number)));
    Ok(())
}

/// Appends a `PlayRequest`'s bytes.
pub fn write_play<'a>(
    first_serial: u64,
    names: impl Iterator<Item = &'a [u8]>,
    counts: &[u64],
    done: bool,
    out: &mut Vec<u8>,
) {
    put_number(1, first_serial, out);
    names.for_each(|name| put_bytes(2, name, out));
    put_packed(3, counts, out);
    put_number(4, done.into(), out);
}

fn put_number(field: u8, number: u64, out: &mut Vec<u8>) {
    if number != 0 {
        out.push(key(field, VARINT));
        encode_varint(number, out);
    }
}

/// `PlayResponse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played<'a> {
    /// As in the request.
    pub first_serial: u64,
    /// One for each message.
    pub values: Vec<u64>,
    /// The client's and the server's checksum when the game ended, else empty.
    pub checksums: [&'a [u8]; 2],
}

impl<'a> Played<'a> {
    /// Reads it.
    pub fn read(mut bytes: &'a [u8]) -> Result<Self, Refusal> {
        let mut played = Self::default();
        while !bytes.is_empty() {
            match field(&mut bytes)? {
                (1, Value::Number(serial)) => played.first_serial = serial,
                (2, Value::Bytes(packed)) => read_packed(packed, &mut played.values)?,
                (2, Value::Eight(value)) => played.values.push(value),
                (3, Value::Bytes(checksum)) => played.checksums[0] = checksum,
                (4, Value::Bytes(checksum)) => played.checksums[1] = checksum,
                (1..=4, _) => return Err(WRONG_TYPE),
                _ => {}
            }
        }
        Ok(played)
    }

    /// Appends its bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_number(1, self.first_serial, out);
        put_packed(2, &self.values, out);
        for (field, checksum) in [3, 4].into_iter().zip(self.checksums) {
            if !checksum.is_empty() {
                put_bytes(field, checksum, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    /// The contract once more, as prost has it.
    #[derive(Clone, PartialEq, Message)]
    struct TryRequest {
        #[prost(string, tag = "1")]
        serial: String,
        #[prost(string, tag = "2")]
        name: String,
        #[prost(string, tag = "3")]
        count: String,
    }

    #[derive(Clone, PartialEq, Message)]
    struct TryResponse {
        #[prost(string, tag = "1")]
        value: String,
    }

    #[derive(Clone, PartialEq, Message)]
    struct PlayRequest {
        #[prost(uint64, tag = "1")]
        first_serial: u64,
        #[prost(bytes = "vec", repeated, tag = "2")]
        names: Vec<Vec<u8>>,
        #[prost(fixed64, repeated, tag = "3")]
        counts: Vec<u64>,
        #[prost(bool, tag = "4")]
        done: bool,
    }

    #[derive(Clone, PartialEq, Message)]
    struct PlayResponse {
        #[prost(uint64, tag = "1")]
        first_serial: u64,
        #[prost(fixed64, repeated, tag = "2")]
        values: Vec<u64>,
        #[prost(bytes = "vec", tag = "3")]
        client_checksum: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        server_checksum: Vec<u8>,
    }

    proptest! {
        #[test]
        fn single_messages_are_what_prost_makes_of_them(serial in 1..u64::MAX, name: String, count: u64) {
            let theirs = TryRequest { serial: serial.to_string(), name: name.clone(), count: count.to_string() };
            let ours = Try { serial, name: name.as_bytes(), count };
            let mut out = Vec::new();
            ours.write(&mut out);
            prop_assert_eq!(&out, &theirs.encode_to_vec());
            prop_assert_eq!(Try::read(&out, usize::MAX), Ok(ours));
            let theirs = TryResponse { value: count.to_string() };
            let mut room = [0; TRY_RESPONSE_BYTES_MAX];
            prop_assert_eq!(write_value(count, &mut room), &theirs.encode_to_vec()[..]);
            prop_assert_eq!(read_value(&theirs.encode_to_vec()), Ok(count));
        }

        #[test]
        fn frames_are_what_prost_makes_of_them(
            first_serial: u64,
            messages: Vec<(Vec<u8>, u64)>,
            done: bool,
            checksums: [Vec<u8>; 2],
        ) {
            let (names, counts): (Vec<_>, Vec<_>) = messages.into_iter().unzip();
            let theirs = PlayRequest { first_serial, names: names.clone(), counts: counts.clone(), done };
            let mut out = Vec::new();
            let borrowed: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
            write_play(first_serial, borrowed.iter().copied(), &counts, done, &mut out);
            prop_assert_eq!(&out, &theirs.encode_to_vec());
            let ours = Play { first_serial, names: borrowed, counts: counts.clone(), done };
            prop_assert_eq!(Play::read(&out, usize::MAX), Ok(ours));
            let [client_checksum, server_checksum] = checksums.clone();
            let theirs = PlayResponse { first_serial, values: counts.clone(), client_checksum, server_checksum };
            let ours = Played { first_serial, values: counts, checksums: [&checksums[0], &checksums[1]] };
            out.clear();
            ours.write(&mut out);
            prop_assert_eq!(&out, &theirs.encode_to_vec());
            prop_assert_eq!(Played::read(&out), Ok(ours));
        }

        #[test]
        fn any_bytes_are_read_or_refused_and_prost_reads_what_we_read(bytes: Vec<u8>) {
            let _ = Try::read(&bytes, usize::MAX);
            let _ = read_value(&bytes);
            let _ = Played::read(&bytes);
            if let (Ok(ours), Ok(theirs)) = (Play::read(&bytes, usize::MAX), PlayRequest::decode(&bytes[..])) {
                prop_assert_eq!(ours.names, theirs.names);
                prop_assert_eq!(ours.counts, theirs.counts);
            }
        }
    }
}
