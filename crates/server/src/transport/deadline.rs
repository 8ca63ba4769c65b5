//! The time that a caller gives a call (`grpc-timeout`). The engine ends such a call as CANCELLED, which reads as
//! if the caller had done it; here it ends in time with the status that the protocol has for it.

use std::time::Duration;

use http::HeaderMap;
use tonic::Status;

/// What `grpc-timeout` says: up to eight digits and a unit.
pub(super) fn of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let unit = text.chars().next_back()?;
    let digits = &text[..text.len() - unit.len_utf8()];
    let valid = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| valid)?;
    Some(match unit {
        'H' => Duration::from_secs(count * 3600),
        'M' => Duration::from_secs(count * 60),
        'S' => Duration::from_secs(count),
        'm' => Duration::from_millis(count),
        'u' => Duration::from_micros(count),
        'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// What the caller is told, should it still listen.
pub(super) fn over() -> Status {
    Status::deadline_exceeded(
        "the deadline was over before the call was done: allow more time, and send a purchase again with its \
         idempotency key to learn what became of it",
    )
}

#[cfg(test)]
mod tests {
    use super::of;
    use http::{HeaderMap, HeaderValue};
    use std::time::Duration;

    #[test]
    fn every_unit_is_read_and_nothing_else() {
        let read = |text: &'static str| {
            of(&HeaderMap::from_iter([(http::HeaderName::from_static("grpc-timeout"), HeaderValue::from_static(text))]))
        };
        assert_eq!(read("2H"), Some(Duration::from_hours(2)));
        assert_eq!(read("3M"), Some(Duration::from_mins(3)));
        assert_eq!(read("4S"), Some(Duration::from_secs(4)));
        assert_eq!(read("99999999m"), Some(Duration::from_millis(99_999_999)));
        assert_eq!(read("6u"), Some(Duration::from_micros(6)));
        assert_eq!(read("7n"), Some(Duration::from_nanos(7)));
        for bad in ["", "5", "m", "123456789m", "-1m", "1.5S", "5x", "+5m"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(of(&HeaderMap::new()), None);
    }
}
