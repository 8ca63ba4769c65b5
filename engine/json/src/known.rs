//! Well-known types whose JSON is one string: field mask paths, type URLs, base64, timestamps and durations.
//!
//! Implements: RFC 3339 as protobuf narrows it; calendar arithmetic as in Howard Hinnant's "chrono-Compatible Low-Level
//! Date Algorithms".

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{alphabet, engine::DecodePaddingMode};

use super::number::write_whole;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
const LENIENT_STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const LENIENT_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Appends bytes as quoted base64.
pub(super) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
    out.push(b'"');
}

/// Length of the bytes that a valid base64 text decodes to.
pub(super) fn base64_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

/// Decodes base64 in either alphabet, padded or not; false if it is invalid.
pub(super) fn read_base64(text: &str, out: &mut Vec<u8>) -> bool {
    let is_url_safe = text.contains(['-', '_']);
    let engine = if is_url_safe { LENIENT_URL_SAFE } else { LENIENT_STANDARD };
    engine.decode_vec(text, out).is_ok()
}

/// Appends a field mask's path in JSON form (`fooBar.baz`); false if it would not read back as the same path.
pub(super) fn write_path(path: &str, out: &mut String) -> bool {
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '_' => match letters.next() {
                Some(next @ 'a'..='z') => out.push(next.to_ascii_uppercase()),
                _ => return false,
            },
            'A'..='Z' => return false,
            _ => out.push(letter),
        }
    }
    true
}

/// A field mask's path in protobuf form (`foo_bar.baz`); None if it is not valid in JSON.
pub(super) fn read_path(path: &str) -> Option<String> {
    let mut out = String::with_capacity(path.len() + 4);
    for letter in path.chars() {
        match letter {
            '_' => return None,
            'A'..='Z' => {
                out.push('_');
                out.push(letter.to_ascii_lowercase());
            }
            _ => out.push(letter),
        }
    }
    Some(out)
}

const NANOS: u32 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;
/// From 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z.
const TIMESTAMP_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// About 10,000 years.
const DURATION_SECONDS_MAX: u64 = 315_576_000_000;

/// Appends a timestamp in quotes; false if it is out of range.
pub(super) fn write_timestamp(seconds: i64, nanos: i32, out: &mut Vec<u8>) -> bool {
    let Some(nanos) = u32::try_from(nanos).ok().filter(|nanos| *nanos < NANOS) else { return false };
    if !TIMESTAMP_SECONDS.contains(&seconds) {
        return false;
    }
    let (year, month, day) = date(seconds.div_euclid(DAY_SECONDS));
    let second = seconds.rem_euclid(DAY_SECONDS);
    let mut text = *b"\"0000-00-00T00:00:00";
    let parts = [(1, 4, year), (6, 2, month), (9, 2, day)];
    let times = [(12, 2, second / 3600), (15, 2, second / 60 % 60), (18, 2, second % 60)];
    for (at, len, mut number) in parts.into_iter().chain(times) {
        for digit in text[at..at + len].iter_mut().rev() {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
        }
    }
    out.extend_from_slice(&text);
    write_nanos(nanos, out);
    out.extend_from_slice(b"Z\"");
    true
}

/// Appends a duration in quotes; false if it is out of range.
pub(super) fn write_duration(seconds: i64, nanos: i32, out: &mut Vec<u8>) -> bool {
    let signs_differ = seconds != 0 && nanos != 0 && (seconds < 0) != (nanos < 0);
    if seconds.unsigned_abs() > DURATION_SECONDS_MAX || nanos.unsigned_abs() >= NANOS || signs_differ {
        return false;
    }
    out.extend_from_slice(if seconds < 0 || nanos < 0 { b"\"-" } else { b"\"" });
    write_whole(seconds.unsigned_abs(), out);
    write_nanos(nanos.unsigned_abs(), out);
    out.extend_from_slice(b"s\"");
    true
}

/// Appends a point with three, six or nine digits; nothing for 0.
fn write_nanos(nanos: u32, out: &mut Vec<u8>) {
    if nanos == 0 {
        return;
    }
    let (digits, mut number) = match nanos {
        _ if nanos.is_multiple_of(1_000_000) => (3, nanos / 1_000_000),
        _ if nanos.is_multiple_of(1_000) => (6, nanos / 1_000),
        _ => (9, nanos),
    };
    let mut text = *b".000000000";
    for digit in text[1..=digits].iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
    out.extend_from_slice(&text[..=digits]);
}

/// Year, month and day of a day since 1970-01-01.
fn date(day: i64) -> (i64, i64, i64) {
    // Eras of 400 years that begin on the first of March of year 0.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let month_of_year = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month_of_year <= 2), month_of_year, day_of_year - (153 * month + 2) / 5 + 1)
}

/// Day since 1970-01-01 of a date in years 0 to 9999; None if the date does not exist.
fn day(year: i64, month: i64, day: i64) -> Option<i64> {
    let year_of_march = year - i64::from(month <= 2);
    let (era, year_of_era) = (year_of_march.div_euclid(400), year_of_march.rem_euclid(400));
    let month_of_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_of_march + 2) / 5 + day - 1;
    let number = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some(number).filter(|number| date(*number) == (year, month, day))
}

/// Parses exactly `len` digits; returns the rest as well.
fn digits(text: &str, len: usize) -> Option<(i64, &str)> {
    let (digits, rest) = text.split_at_checked(len)?;
    let right = digits.bytes().all(|digit| digit.is_ascii_digit());
    Some((digits.parse().ok().filter(|_| right)?, rest))
}

/// Parses a number of `len` digits below `bound`, after the character `before`.
fn part(text: &str, before: char, len: usize, bound: i64) -> Option<(i64, &str)> {
    digits(text.strip_prefix(before)?, len).filter(|(number, _)| *number < bound)
}

/// Nanoseconds from up to nine digits after a point, and the rest; 0 without a point.
fn fraction(text: &str) -> Option<(i32, &str)> {
    let Some(after) = text.strip_prefix('.') else { return Some((0, text)) };
    let len = after.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = digits(after, len).filter(|_| (1..=9).contains(&len))?;
    let scale = 10i64.pow(u32::try_from(9 - len).ok()?);
    Some((i32::try_from(number * scale).ok()?, rest))
}

/// Seconds of an offset such as `+01:30`.
fn offset(text: &str) -> Option<i64> {
    let sign = if text.starts_with('-') { '-' } else { '+' };
    let (hours, rest) = part(text, sign, 2, 24)?;
    let (minutes, rest) = part(rest, ':', 2, 60)?;
    let seconds = (hours * 60 + minutes) * 60;
    rest.is_empty().then_some(if sign == '-' { -seconds } else { seconds })
}

/// Seconds and nanoseconds of an RFC 3339 time; None if it is invalid or out of range.
pub(super) fn parse_timestamp(text: &str) -> Option<(i64, i32)> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = part(rest, '-', 2, 13)?;
    let (day_of_month, rest) = part(rest, '-', 2, 32)?;
    let (hour, rest) = part(rest, 'T', 2, 24)?;
    let (minute, rest) = part(rest, ':', 2, 60)?;
    let (second, rest) = part(rest, ':', 2, 60)?;
    let (nanos, rest) = fraction(rest)?;
    let offset = if rest == "Z" { 0 } else { offset(rest)? };
    let seconds = day(year, month, day_of_month)? * DAY_SECONDS + hour * 3600 + minute * 60 + second - offset;
    Some((seconds, nanos)).filter(|_| TIMESTAMP_SECONDS.contains(&seconds))
}

/// Seconds and nanoseconds of a duration such as `-1.5s`; None if it is invalid or out of range.
pub(super) fn parse_duration(text: &str) -> Option<(i64, i32)> {
    let (sign, rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let len = rest.bytes().take_while(u8::is_ascii_digit).count();
    // More digits than any duration in range has, leading zeros aside.
    let (seconds, rest) = digits(rest, len).filter(|_| (1..=18).contains(&len))?;
    let (nanos, rest) = fraction(rest)?;
    let right = rest == "s" && seconds.unsigned_abs() <= DURATION_SECONDS_MAX;
    right.then_some((i64::from(sign) * seconds, sign * nanos))
}
