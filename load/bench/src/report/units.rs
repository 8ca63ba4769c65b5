//! Numbers with units for people: three significant digits, and a unit that keeps them short.

/// Significant digits shown; the histograms behind them have no more.
const DIGITS: i32 = 3;

const DASH: &str = "–";

/// Three significant digits, without an exponent: `0.0123`, `4.56`, `78.9`, `123`, `4568` (digits before the point
/// are all kept).
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return DASH.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = floor(value.abs().log10());
    let decimals = usize::try_from(DIGITS - 1 - magnitude).unwrap_or(0).min(9);
    // Rounding can add a digit: 9.999 is 10.0, not 10.00.
    let rounded: f64 = format!("{value:.decimals$}").parse().unwrap_or(value);
    let grown = rounded != 0.0 && floor(rounded.abs().log10()) > magnitude;
    let decimals = if grown { decimals.saturating_sub(1) } else { decimals };
    separated(&format!("{value:.decimals$}"))
}

/// A whole number with thousands separators.
pub fn count(value: u64) -> String {
    separated(&value.to_string())
}

pub fn rate(value: f64) -> String {
    format!("{} /s", number(value))
}

/// A time, given in microseconds.
pub fn micros(value: f64) -> String {
    if value == 0.0 {
        return "0 µs".to_owned();
    }
    let (divisor, unit) = time_unit(value);
    format!("{} {unit}", number(value / divisor))
}

/// The unit in which a time in microseconds reads best, and its length in microseconds.
pub fn time_unit(value_us: f64) -> (f64, &'static str) {
    // The bounds are where rounding to three digits would show 1000 of the smaller unit.
    match value_us.abs() {
        value if value < 0.9995 => (1e-3, "ns"),
        value if value < 999.5 => (1.0, "µs"),
        value if value < 999_500.0 => (1e3, "ms"),
        value if value < 599_500_000.0 => (1e6, "s"),
        _ => (60e6, "min"),
    }
}

/// Bytes, in powers of a thousand.
pub fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = value;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let shown = if unit == 0 { count(whole(value)) } else { number(value) };
    format!("{shown} {}", units[unit])
}

/// A share as a percentage; a share above 0 is never shown as 0.
pub fn percent(share: f64) -> String {
    match share {
        share if !share.is_finite() => DASH.to_owned(),
        0.0 => "0%".to_owned(),
        share if share < 0.000_01 => "< 0.001%".to_owned(),
        share if share > 0.999_99 && share < 1.0 => "> 99.999%".to_owned(),
        share => format!("{}%", number(share * 100.0)),
    }
}

/// Part of a whole; 0 if the whole is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { float(part) / float(whole) }
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53, and shown with three digits")]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// A number of items in memory as a float.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub fn real(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, reason = "a logarithm of a finite number is at most 308")]
fn floor(value: f64) -> i32 {
    value.floor() as i32
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below a thousand, checked by its caller")]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Inserts a comma before every third digit of the whole part.
fn separated(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut text = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_never_an_exponent() {
        for (value, shown) in [
            (0.0, "0"),
            (0.012_345, "0.0123"),
            (1.0, "1.00"),
            (9.999, "10.0"),
            (99.96, "100"),
            (123.4, "123"),
            (1234.5, "1,234"),
            (812_345.0, "812,345"),
            (-4567.0, "-4,567"),
            (1e15, "1,000,000,000,000,000"),
            (f64::INFINITY, "–"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), shown, "{value}");
        }
    }

    #[test]
    fn times_change_their_unit_where_a_thousand_would_be_shown() {
        for (value, shown) in [
            (0.0, "0 µs"),
            (0.25, "250 ns"),
            (999.4, "999 µs"),
            (999.6, "1.00 ms"),
            (26_320.0, "26.3 ms"),
            (1_500_000.0, "1.50 s"),
            (3_600e6, "60.0 min"),
        ] {
            assert_eq!(micros(value), shown, "{value}");
        }
    }

    #[test]
    fn a_share_that_is_there_is_not_shown_as_none() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(1e-9), "< 0.001%");
        assert_eq!(percent(0.999_999_9), "> 99.999%");
        assert_eq!(percent(0.012_34), "1.23%");
        assert_eq!(percent(1.0), "100%");
        assert!(share(1, 0) == 0.0);
    }

    #[test]
    fn bytes_and_counts_of_any_size_are_short() {
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(999.0), "999 B");
        assert_eq!(bytes(1_234_567.0), "1.23 MB");
        assert_eq!(bytes(5e18), "5,000 PB");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }
}
