//! The contract's messages, read in place and written by hand. Must agree with prost's encoding.

use quire_rpc::wire::{
    Fields, Malformed, Value, bytes_len, number_len, put_bytes, put_delimited, put_number, put_packed,
};
use quire_rpc::{Decode, Encode, Payload, Status};

use crate::number::{self, DIGITS_MAX};
use crate::refusal::{Field, Refusal};

const WRONG_TYPE: Refusal = Refusal::Malformed("a field has another type than the contract says");

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed.0)
    }
}

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
    /// Decodes and validates it, except for its turn.
    #[inline]
    pub fn read(bytes: &'a [u8], name_bytes_max: usize) -> Result<Self, Refusal> {
        let [mut serial, mut name, mut count] = [&[][..]; 3];
        for field in Fields::of(bytes) {
            match field? {
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

    /// Appends its encoding.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        let room = &mut [0; DIGITS_MAX];
        put_delimited(1, number::format(self.serial, room), out);
        put_bytes(2, self.name, out);
        put_delimited(3, number::format(self.count, room), out);
    }
}

impl Encode for Try<'_> {
    fn encoded_len(&self) -> usize {
        2 * bytes_len(DIGITS_MAX) + bytes_len(self.name.len())
    }

    fn encode(self, out: &mut Vec<u8>) {
        self.write(out);
    }
}

#[inline]
fn check_name(name: &[u8], bytes_max: usize) -> Result<(), Refusal> {
    if name.len() > bytes_max {
        return Err(Refusal::NameTooLong { bytes: name.len(), bytes_max });
    }
    Ok(())
}

/// Appends a `TryResponse`.
#[inline]
pub fn write_value(value: u64, out: &mut Vec<u8>) {
    put_delimited(1, number::format(value, &mut [0; DIGITS_MAX]), out);
}

/// Decodes a `TryResponse`.
#[inline]
pub fn read_value(bytes: &[u8]) -> Result<u64, Refusal> {
    let mut value = &[][..];
    for field in Fields::of(bytes) {
        match field? {
            (1, Value::Bytes(text)) => value = text,
            (1, _) => return Err(WRONG_TYPE),
            _ => {}
        }
    }
    number::parse(value).map_err(|fault| Refusal::Number { field: Field::Count, fault })
}

/// The value in a `TryResponse`, if valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried(pub Result<u64, Refusal>);

impl Decode for Tried {
    fn decode(payload: Payload<'_>) -> Result<Self, Status> {
        Ok(Self(read_value(payload.as_slice())))
    }
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
    /// True if the game ends with these messages.
    pub done: bool,
}

impl<'a> Play<'a> {
    /// Decodes and validates a frame, reusing buffers.
    pub fn read(bytes: &'a [u8], name_bytes_max: usize) -> Result<Self, Refusal> {
        let mut play = Self::default();
        for field in Fields::of(bytes) {
            match field? {
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

/// Appends an encoded `PlayRequest`.
pub fn write_play<'a>(
    first_serial: u64,
    names: impl Iterator<Item = &'a [u8]>,
    counts: &[u64],
    done: bool,
    out: &mut Vec<u8>,
) {
    put_number(1, first_serial, out);
    names.for_each(|name| put_delimited(2, name, out));
    put_packed(3, counts, out);
    put_number(4, done.into(), out);
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
    /// Decodes it.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let mut played = Self::default();
        for field in Fields::of(bytes) {
            match field? {
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

    /// Upper bound of the bytes that [`Played::write`] appends.
    pub fn encoded_len_max(&self) -> usize {
        let checksums = self.checksums.map(|checksum| bytes_len(checksum.len()));
        number_len(u64::MAX) + bytes_len(self.values.len() * 8) + checksums.iter().sum::<usize>()
    }

    /// Appends its encoding.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_number(1, self.first_serial, out);
        put_packed(2, &self.values, out);
        for (field, checksum) in [3, 4].into_iter().zip(self.checksums) {
            put_bytes(field, checksum, out);
        }
    }
}

/// Text form of a checksum: 16 lower-case hexadecimal digits.
pub(super) fn digits(checksum: u64) -> Vec<u8> {
    format!("{checksum:016x}").into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quire_rpc::prost::Message;

    use super::super::wire::{PlayRequest, PlayResponse, TryRequest, TryResponse};
    use super::*;

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
            prop_assert!(Encode::encoded_len(&ours) >= out.len());
            out.clear();
            write_value(count, &mut out);
            prop_assert_eq!(&out, &theirs.encode_to_vec());
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
            prop_assert!(ours.encoded_len_max() >= out.len());
            prop_assert_eq!(&out, &theirs.encode_to_vec());
            prop_assert_eq!(Played::read(&out), Ok(ours));
        }

        #[test]
        fn any_bytes_are_read_or_refused_and_prost_reads_what_we_read(bytes: Vec<u8>) {
            let _ = Try::read(&bytes, usize::MAX);
            let _ = read_value(&bytes);
            let _ = Played::read(&bytes);
            if let (Ok(ours), Ok(theirs)) = (Play::read(&bytes, usize::MAX), <PlayRequest as Message>::decode(&bytes[..])) {
                prop_assert_eq!(ours.names, theirs.names);
                prop_assert_eq!(ours.counts, theirs.counts);
            }
        }
    }
}
