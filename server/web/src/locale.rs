//! Numbers and prices in the visitor's form, by `Accept-Language` (RFC 9110 section 12.5.4).

use std::fmt::Write as _;

use axum::http::{HeaderMap, header};
use bookstore::Cents;

/// Separators of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Locale {
    decimal: char,
    group: &'static str,
    /// Groups of two digits above the first three, as in India.
    is_indian: bool,
}

const NARROW: &str = "\u{202f}";
const NO_BREAK: &str = "\u{a0}";

const ENGLISH: Locale = Locale { decimal: '.', group: ",", is_indian: false };

/// Languages with other separators than English, from CLDR; a tag is looked up before its first part.
const OTHERS: [(&str, char, &str); 33] = [
    ("bg", ',', NO_BREAK),
    ("ca", ',', "."),
    ("cs", ',', NO_BREAK),
    ("da", ',', "."),
    ("de", ',', "."),
    ("de-at", ',', NO_BREAK),
    ("de-ch", '.', "’"),
    ("de-li", '.', "’"),
    ("el", ',', "."),
    ("es", ',', "."),
    ("es-mx", '.', ","),
    ("et", ',', NO_BREAK),
    ("fi", ',', NO_BREAK),
    ("fr", ',', NARROW),
    ("fr-ca", ',', NO_BREAK),
    ("hr", ',', "."),
    ("hu", ',', NO_BREAK),
    ("id", ',', "."),
    ("it", ',', "."),
    ("lt", ',', NO_BREAK),
    ("nb", ',', NO_BREAK),
    ("nl", ',', "."),
    ("no", ',', NO_BREAK),
    ("pl", ',', NO_BREAK),
    ("pt", ',', "."),
    ("ro", ',', "."),
    ("ru", ',', NO_BREAK),
    ("sk", ',', NO_BREAK),
    ("sl", ',', "."),
    ("sv", ',', NO_BREAK),
    ("tr", ',', "."),
    ("uk", ',', NO_BREAK),
    ("vi", ',', "."),
];

impl Locale {
    /// The form of the language that the visitor prefers; English if none is named.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let weighed = accepted.split(',').filter_map(|item| {
            let (tag, weight) = item.split_once(';').map_or((item, 1.0), |(tag, weight)| {
                (tag, weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok()).unwrap_or(0.0))
            });
            Some((tag.trim(), weight)).filter(|(tag, weight)| !tag.is_empty() && *weight > 0.0)
        });
        // The first of the heaviest.
        let best = weighed.fold(("", 0.0), |best, next| if next.1 > best.1 { next } else { best });
        Self::named(best.0)
    }

    fn named(tag: &str) -> Self {
        let tag = tag.to_ascii_lowercase();
        let found = |tag: &str| OTHERS.iter().find(|(name, ..)| *name == tag);
        let language = tag.split('-').next().unwrap_or_default();
        let is_indian = language == "hi" || tag == "en-in";
        found(&tag).or_else(|| found(language)).map_or(Self { is_indian, ..ENGLISH }, |&(_, decimal, group)| Self {
            decimal,
            group,
            is_indian,
        })
    }

    /// A whole number with its groups of digits.
    pub(crate) fn count(&self, number: impl TryInto<u64>) -> String {
        let digits = number.try_into().unwrap_or(u64::MAX).to_string();
        let mut text = String::with_capacity(digits.len() * 2);
        for (place, digit) in digits.chars().enumerate() {
            let left = digits.len() - place;
            let ends_group = if self.is_indian { left == 3 || (left > 3 && left % 2 == 1) } else { left % 3 == 0 };
            if place > 0 && ends_group {
                text.push_str(self.group);
            }
            text.push(digit);
        }
        text
    }

    /// A size in its largest binary unit, with three digits.
    pub(crate) fn bytes(&self, bytes: u64) -> String {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        let Some(power) = (1..=UNITS.len()).rev().find(|power| bytes >> (power * 10) > 0) else {
            return format!("{} B", self.count(bytes));
        };
        let hundredths = (u128::from(bytes) * 100) >> (power * 10);
        let (whole, rest) = (hundredths / 100, hundredths % 100);
        let digits = match whole {
            0..10 => format!("{whole}{}{rest:02}", self.decimal),
            10..100 => format!("{whole}{}{}", self.decimal, rest / 10),
            _ => self.count(whole),
        };
        format!("{digits} {}", UNITS[power - 1])
    }

    /// A number with three digits.
    pub(crate) fn number(&self, number: f64) -> String {
        let places = match number {
            ..10.0 => 2,
            ..100.0 => 1,
            _ => 0,
        };
        let text = format!("{number:.places$}");
        let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
        let whole = whole.parse::<u64>().map_or_else(|_| whole.to_owned(), |whole| self.count(whole));
        match rest.trim_end_matches('0') {
            "" => whole,
            rest => format!("{whole}{}{rest}", self.decimal),
        }
    }

    /// A time in seconds, in its largest unit from microseconds on.
    pub(crate) fn time(&self, seconds: f64) -> String {
        let (scaled, unit) = match seconds {
            ..0.001 => (seconds * 1e6, "µs"),
            ..1.0 => (seconds * 1e3, "ms"),
            _ => (seconds, "s"),
        };
        format!("{} {unit}", self.number(scaled))
    }

    /// An amount with two decimals. The shop's contract names no currency.
    pub(crate) fn price(&self, price: Cents) -> String {
        let cents = price.get();
        let mut text = self.count(cents / 100);
        text.push(self.decimal);
        // A string takes all that is written.
        let _ = write!(text, "{:02}", cents % 100);
        text
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, header};
    use bookstore::Cents;

    use super::Locale;

    fn shown(accepted: &str) -> String {
        let value = HeaderValue::from_str(accepted).unwrap();
        let locale = Locale::of(&HeaderMap::from_iter([(header::ACCEPT_LANGUAGE, value)]));
        locale.price(Cents::new(123_456_789).unwrap())
    }

    #[test]
    fn prices_have_the_separators_of_the_preferred_language() {
        for (accepted, price) in [
            ("", "1,234,567.89"),
            ("en-GB,en;q=0.9", "1,234,567.89"),
            ("de-DE,de;q=0.9,en;q=0.8", "1.234.567,89"),
            ("en;q=0.3, fr;q=0.7", "1\u{202f}234\u{202f}567,89"),
            ("de-CH", "1’234’567.89"),
            ("en-IN", "12,34,567.89"),
            ("sv", "1\u{a0}234\u{a0}567,89"),
            ("de;q=0, en", "1,234,567.89"),
            ("*", "1,234,567.89"),
            ("de;q=many", "1,234,567.89"),
        ] {
            assert_eq!(shown(accepted), price, "{accepted}");
        }
    }

    #[test]
    fn sizes_have_three_digits() {
        let locale = Locale::of(&HeaderMap::new());
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1,023 B"),
            (1024, "1.00 KiB"),
            (1_572_864, "1.50 MiB"),
            (64 << 20, "64.0 MiB"),
            (1000 << 30, "1,000 GiB"),
            (u64::MAX, "16,383 PiB"),
        ] {
            assert_eq!(locale.bytes(bytes), text);
        }
    }

    #[test]
    fn numbers_and_times_have_three_digits() {
        let locale = Locale::of(&HeaderMap::new());
        for (number, text) in [(0.0, "0"), (0.5, "0.5"), (9.876, "9.88"), (12.34, "12.3"), (1234.5, "1,234")] {
            assert_eq!(locale.number(number), text);
        }
        for (seconds, text) in [(0.0, "0 µs"), (0.000_312, "312 µs"), (0.0042, "4.2 ms"), (1.5, "1.5 s")] {
            assert_eq!(locale.time(seconds), text);
        }
    }

    #[test]
    fn small_numbers_have_no_groups() {
        let locale = Locale::of(&HeaderMap::new());
        assert_eq!(
            (locale.count(0u64), locale.count(999u64), locale.count(1000u64)),
            ("0".into(), "999".into(), "1,000".into())
        );
        assert_eq!(locale.price(Cents::new(5).unwrap()), "0.05");
    }
}
