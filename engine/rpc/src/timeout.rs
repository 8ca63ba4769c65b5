//! `grpc-timeout` (gRPC over HTTP/2, "Timeout"): at most eight digits and a unit.

use std::time::Duration;

const DIGITS_MAX: usize = 8;
const VALUE_MAX: u128 = 99_999_999;

/// Parses a timeout; `None` if invalid.
pub(crate) fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Timeout sent to a server: rounded up to three digits, since the server must not give up before its caller. Calls
/// with the same timeout then send the same value, though each has used up some microseconds, so their heads can be
/// cached.
pub(crate) fn rounded_up(timeout: Duration) -> Duration {
    let nanos = timeout.as_nanos();
    let step = 10_u128.pow(nanos.checked_ilog10().unwrap_or(0).saturating_sub(2));
    u64::try_from(nanos.div_ceil(step) * step).map_or(timeout, Duration::from_nanos)
}

/// Formats with the finest unit whose number fits in eight digits, rounded up.
pub(crate) fn format(timeout: Duration) -> String {
    let nanos = timeout.as_nanos();
    let units = [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S'), (60_000_000_000, 'M')];
    match units.into_iter().find(|(size, _)| nanos.div_ceil(*size) <= VALUE_MAX) {
        Some((size, unit)) => format!("{}{unit}", nanos.div_ceil(size)),
        None => format!("{}H", nanos.div_ceil(3_600_000_000_000).min(VALUE_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        for (text, expected) in [
            ("1H", Duration::from_hours(1)),
            ("2M", Duration::from_mins(2)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("99999999n", Duration::from_nanos(99_999_999)),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(expected));
        }
        for text in ["", "S", "1", "123456789S", "-1S", "1x"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_never_shorter_than_what_was_meant() {
        for timeout in [0, 1, 99_999_999, 100_000_000, 123_456_789_012, u64::MAX].map(Duration::from_nanos) {
            let read = parse(format(timeout).as_bytes()).unwrap();
            assert!(read.checked_sub(timeout).is_some_and(|more| more <= timeout / 50_000));
        }
        assert_eq!(format(Duration::MAX), "99999999H");
    }

    #[test]
    fn calls_with_the_same_timeout_are_told_alike() {
        for (left, expected) in [
            (Duration::ZERO, Duration::ZERO),
            (Duration::from_nanos(999), Duration::from_nanos(999)),
            (Duration::from_nanos(1001), Duration::from_nanos(1010)),
            (Duration::from_micros(4_999_987), Duration::from_secs(5)),
            (Duration::from_micros(4_980_001), Duration::from_millis(4990)),
            (Duration::from_mins(15), Duration::from_mins(15)),
            (Duration::MAX, Duration::MAX),
        ] {
            assert_eq!(rounded_up(left), expected, "{left:?}");
        }
    }
}
