//! Decimal numbers in text.

use std::fmt;

/// Reason why text is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFault {
    /// No digit at all.
    Empty,
    /// A sign, a blank, or anything else but `0` to `9`.
    NoDigit,
    /// 2^64 or more.
    TooLarge,
}

impl fmt::Display for NumberFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "is empty",
            Self::NoDigit => "has something else than digits in it",
            Self::TooLarge => "is too large",
        })
    }
}

/// Number of digits that always fit a `u64`.
const SAFE_DIGITS: usize = 19;

/// Parses digits only; leading zeros are allowed.
#[inline]
pub(crate) fn parse(text: &[u8]) -> Result<u64, NumberFault> {
    if text.is_empty() {
        return Err(NumberFault::Empty);
    }
    let (safe, rest) = text.split_at(text.len().min(SAFE_DIGITS));
    let mut number = 0_u64;
    for byte in safe {
        number = number * 10 + digit(*byte)?;
    }
    let mut fits = true;
    for byte in rest {
        let digit = digit(*byte)?;
        match number.checked_mul(10).and_then(|number| number.checked_add(digit)) {
            Some(larger) => number = larger,
            // A later character may not be a digit, which is the worse fault.
            None => fits = false,
        }
    }
    if fits { Ok(number) } else { Err(NumberFault::TooLarge) }
}

#[inline]
fn digit(byte: u8) -> Result<u64, NumberFault> {
    let digit = byte.wrapping_sub(b'0');
    if digit < 10 { Ok(digit.into()) } else { Err(NumberFault::NoDigit) }
}

/// Digits of the longest `u64`.
pub(crate) const DIGITS_MAX: usize = 20;

/// Writes a number's digits to the end of `room` and returns them.
#[inline]
pub(crate) fn format(mut number: u64, room: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        // A remainder of ten is a digit.
        room[start] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            return &room[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_plain_number_is_refused() {
        for (text, fault) in [
            ("", NumberFault::Empty),
            ("-1", NumberFault::NoDigit),
            ("+1", NumberFault::NoDigit),
            (" 1", NumberFault::NoDigit),
            ("1 ", NumberFault::NoDigit),
            ("1\n", NumberFault::NoDigit),
            ("0x10", NumberFault::NoDigit),
            ("1e3", NumberFault::NoDigit),
            ("1.0", NumberFault::NoDigit),
            ("\u{661}", NumberFault::NoDigit),
            ("18446744073709551616", NumberFault::TooLarge),
            ("99999999999999999999999", NumberFault::TooLarge),
            ("99999999999999999999999x", NumberFault::NoDigit),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(fault), "{text:?}");
        }
        for (text, number) in
            [("0", 0), ("0001", 1), ("0000000000000000000000007", 7), ("18446744073709551615", u64::MAX)]
        {
            assert_eq!(parse(text.as_bytes()), Ok(number), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn numbers_are_read_and_written_as_the_standard_library_does(number: u64) {
            let text = number.to_string();
            prop_assert_eq!(parse(text.as_bytes()), Ok(number));
            let mut room = [0; DIGITS_MAX];
            prop_assert_eq!(format(number, &mut room), text.as_bytes());
        }

        #[test]
        fn any_bytes_are_a_number_or_a_fault(bytes: Vec<u8>) {
            let standard = std::str::from_utf8(&bytes).ok().filter(|text| !text.starts_with('+'));
            prop_assert_eq!(parse(&bytes).ok(), standard.and_then(|text| text.parse::<u64>().ok()));
        }
    }
}
