//! Parses sizes and times: `64 MiB`, `500ms`, or a plain number of bytes or seconds.

use std::{fmt, time::Duration};

/// Units of sizes, the largest first; each pair has the binary and the decimal unit.
const UNITS: [(&str, u64); 10] = [
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Parses a size; `None` if invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale = match unit.trim_start() {
            "" | "B" | "b" => 1,
            unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1,
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(Self);
        }
        // A fraction is valid if it makes whole bytes.
        let (whole, fraction) = number.split_once('.')?;
        let places = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let parts = scale.checked_mul(fraction.parse().ok()?)?;
        let rest = parts.is_multiple_of(places).then_some(parts / places)?;
        whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(rest).map(Self)
    }
}

/// In the largest binary unit without a fraction.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, scale): &&(&str, u64)| scale.is_power_of_two() && self.0 > 0 && self.0.is_multiple_of(*scale);
        match UNITS.iter().find(fits) {
            Some((name, scale)) => write!(f, "{} {name}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Longest time in settings and flags.
const SECONDS_MAX: f64 = 86_400.0;

/// Valid times, for errors.
pub(crate) const TIME: &str = "a time above 0 and up to 86400 s, as 5, 0.5, 500ms or 2min";

/// Parses seconds, as a number or with a unit.
pub(crate) fn seconds(text: &str) -> Option<f64> {
    let plain = text.trim().parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    plain.or_else(|| humantime::parse_duration(text.trim()).ok().map(|time| time.as_secs_f64()))
}

/// A time above 0 and up to the limit.
pub(crate) fn duration(seconds: f64) -> Option<Duration> {
    (seconds > 0.0 && seconds <= SECONDS_MAX).then(|| Duration::from_secs_f64(seconds))
}

/// Parses a flag's time above 0.
pub fn time(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(duration).ok_or_else(|| format!("'{text}' is no time; it must be {TIME}"))
}

#[cfg(test)]
mod tests {
    use super::{Bytes, seconds, time};

    #[test]
    fn sizes_are_read_with_units_of_1024_and_of_1000_and_without() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096 B", 4096),
            ("1 GiB", 1 << 30),
            ("64MiB", 64 << 20),
            ("64mib", 64 << 20),
            ("512 kB", 512_000),
            ("1.5 KiB", 1536),
            (" 2 GB ", 2_000_000_000),
        ] {
            assert_eq!(Bytes::parse(text), Some(Bytes(bytes)), "{text}");
        }
        for text in ["", "MiB", "64M", "-1", "1.0001 KiB", "1 . 5 KiB", "one", "99999999 PiB", "1e3", "."] {
            assert_eq!(Bytes::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_is_shown_as_it_can_be_read() {
        for (bytes, shown) in [(0, "0"), (256, "256"), (16_384, "16 KiB"), (4 << 20, "4 MiB"), (60_000, "60000")] {
            assert_eq!(Bytes(bytes).to_string(), shown);
            assert_eq!(Bytes::parse(shown), Some(Bytes(bytes)));
        }
    }

    #[test]
    fn times_are_read_in_seconds_or_with_a_unit() {
        for (text, time) in
            [("10", 10.0), ("0.5", 0.5), ("500ms", 0.5), ("2min", 120.0), ("1m 30s", 90.0), ("10 s", 10.0)]
        {
            assert_eq!(seconds(text), Some(time), "{text}");
        }
        for text in ["", "soon", "NaN", "inf", "5 parsecs"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        assert!(time("0").is_err() && time("-1").is_err() && time("25h").is_err() && time("24h").is_ok());
    }
}
