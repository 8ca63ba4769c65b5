//! Numbers in JSON and on the wire.

use super::schema::Kind;
use crate::wire::Value;

/// Low 32 bits, as protobuf's decoders truncate a varint to a 32-bit number.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is ignored on purpose")]
pub(super) fn low(number: u64) -> u32 {
    number as u32
}

/// A signed number sign-extended for a varint.
#[inline]
pub(super) fn varint_of(number: i32) -> u64 {
    i64::from(number).cast_unsigned()
}

#[inline]
pub(super) fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

#[inline]
pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Sign and magnitude of a JSON number that is whole, in any form: `10`, `1.0e1`, `100e-1`. None if it is not whole or
/// exceeds 64 bits.
#[inline]
fn whole(text: &str) -> Option<(bool, u64)> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let mut number = 0u64;
    for byte in digits.bytes() {
        if !byte.is_ascii_digit() {
            return Some((is_negative, whole_decimal(digits)?));
        }
        number = number.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    Some((is_negative, number))
}

#[cold]
fn whole_decimal(text: &str) -> Option<u64> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || before.bytes().chain(after.bytes());
    let Some(first) = digits().position(|digit| digit != b'0') else { return Some(0) };
    let total = before.len() + after.len();
    let last = total - after.bytes().rev().chain(before.bytes().rev()).position(|digit| digit != b'0')?;
    // An exponent beyond i64 exceeds any number of digits that fits into memory.
    let exponent = exponent.parse::<i64>().ok()?;
    let point = i64::try_from(before.len()).ok()?.checked_add(exponent)?;
    // Digits `first` to `last` are significant; the point follows `point` of all digits.
    let zeros = usize::try_from(point.checked_sub(i64::try_from(last).ok()?)?).ok()?;
    let mut number = 0u64;
    for digit in digits().take(last).skip(first).map(|digit| digit - b'0').chain(std::iter::repeat_n(0, zeros)) {
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// Wire value of a whole number; None if it is not whole or out of the kind's range.
#[inline]
pub(super) fn parse_whole(kind: Kind, text: &str) -> Option<Value<'static>> {
    let (is_negative, magnitude) = whole(text)?;
    let signed = || if is_negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
    let signed32 = || signed().and_then(|number| i32::try_from(number).ok());
    let unsigned = || Some(magnitude).filter(|magnitude| !is_negative || *magnitude == 0);
    let unsigned32 = || unsigned().and_then(|number| u32::try_from(number).ok());
    Some(match kind {
        Kind::Int32 | Kind::Enum(_) => Value::Number(varint_of(signed32()?)),
        Kind::Sint32 => Value::Number(u64::from(low(zigzag(i64::from(signed32()?))))),
        Kind::Sfixed32 => Value::Four(signed32()?.cast_unsigned()),
        Kind::Uint32 => Value::Number(u64::from(unsigned32()?)),
        Kind::Fixed32 => Value::Four(unsigned32()?),
        Kind::Int64 => Value::Number(signed()?.cast_unsigned()),
        Kind::Sint64 => Value::Number(zigzag(signed()?)),
        Kind::Sfixed64 => Value::Eight(signed()?.cast_unsigned()),
        Kind::Uint64 => Value::Number(unsigned()?),
        Kind::Fixed64 => Value::Eight(unsigned()?),
        _ => return None,
    })
}

/// Wire value of a floating-point number; None if it is out of the kind's range.
#[inline]
pub(super) fn parse_float(kind: Kind, text: &str) -> Option<Value<'static>> {
    Some(match kind {
        Kind::Float => Value::Four(text.parse::<f32>().ok().filter(|number| number.is_finite())?.to_bits()),
        _ => Value::Eight(text.parse::<f64>().ok().filter(|number| number.is_finite())?.to_bits()),
    })
}

/// Wire value of a floating-point number that JSON writes as a word, such as `"NaN"`.
pub(super) fn float_word(kind: Kind, text: &str) -> Option<Value<'static>> {
    let (float, double) = match text {
        "NaN" => (f32::NAN, f64::NAN),
        "Infinity" => (f32::INFINITY, f64::INFINITY),
        "-Infinity" => (f32::NEG_INFINITY, f64::NEG_INFINITY),
        _ => return None,
    };
    Some(if kind == Kind::Float { Value::Four(float.to_bits()) } else { Value::Eight(double.to_bits()) })
}

/// Description of a valid number of this kind, for errors.
pub(super) fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "a whole number from -2147483648 to 2147483647",
        Kind::Uint32 | Kind::Fixed32 => "a whole number from 0 to 4294967295",
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "a whole number of 64 bits, as a string or a number",
        Kind::Uint64 | Kind::Fixed64 => "a whole number from 0 to 18446744073709551615, as a string or a number",
        Kind::Float => "a number of single precision, \"NaN\", \"Infinity\" or \"-Infinity\"",
        Kind::Double => "a number of double precision, \"NaN\", \"Infinity\" or \"-Infinity\"",
        Kind::Bool => "true or false",
        Kind::String => "a string",
        Kind::Bytes => "a string in base64",
        Kind::Enum(_) => "the name of an enum value or its number",
        Kind::Null => "null",
        Kind::Message(_) | Kind::Group(_) => "an object",
    }
}

/// Appends a double or a float; a whole number has no point.
#[inline]
pub(super) fn write_float<F: zmij::Float>(number: F, out: &mut Vec<u8>) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(number);
    out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
}

#[inline]
pub(super) fn write_whole<I: itoa::Integer>(number: I, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
