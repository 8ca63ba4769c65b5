//! Exact money.

use std::fmt;

/// An amount of money in hundredths; never negative, at most [`Cents::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cents(i64);

/// The valid form, for errors.
pub const WANTED: &str = "a price from 0.00 to 1000000000.00 with at most two decimals";

impl Cents {
    /// One thousand million, in cents: far from where `f64` would round it.
    pub const MAX: Self = Self(100_000_000_000);

    /// `None` outside 0 to [`Cents::MAX`].
    pub const fn new(cents: i64) -> Option<Self> {
        if cents >= 0 && cents <= Self::MAX.0 { Some(Self(cents)) } else { None }
    }

    /// The amount in hundredths.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Parses `12`, `12.5` or `12.50`. `None` for anything else: signs, exponents, `NaN`, a third decimal.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 2 || whole.len() > 12 {
            return None;
        }
        let tens = if fraction.len() == 1 { 10 } else { 1 };
        let cents = whole.parse::<i64>().ok()? * 100 + fraction.parse::<i64>().ok()? * tens;
        Self::new(cents)
    }

    /// The amount as a fraction, for wire fields that are `double`.
    #[expect(clippy::cast_precision_loss, reason = "MAX is below 2^53, so every amount is exact before the division")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 100.0
    }
}

impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:02}", self.0 / 100, self.0 % 100))
    }
}

#[cfg(test)]
mod tests {
    use super::Cents;

    #[test]
    fn amounts_are_read_and_written_with_two_decimals() {
        for (text, cents) in [("0", 0), ("12", 1200), ("12.5", 1250), ("12.05", 1205), ("1000000000", 100_000_000_000)]
        {
            assert_eq!(Cents::parse(text).map(Cents::get), Some(cents), "{text}");
        }
        assert_eq!(Cents::new(1205).unwrap().to_string(), "12.05");
        assert_eq!(Cents::new(5).unwrap().to_string(), "0.05");
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "NaN",
            "inf",
            "1e3",
            "12.345",
            "1,50",
            " 1",
            "1000000000.01",
            "99999999999999999999",
        ] {
            assert_eq!(Cents::parse(text), None, "{text}");
        }
    }
}
