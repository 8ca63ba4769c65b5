//! Positions of values on an axis, as shares of it from 0 to 1, and the values of ticks.

use crate::report::units::real;

/// Maximum decades of a logarithmic axis; values below are clamped to its end.
const DECADES_MAX: i32 = 18;

/// Spacing of values on an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Equal differences have equal distances.
    #[default]
    Linear,
    /// Equal ratios have equal distances; values of 0 and below have no position.
    Log,
}

/// A spacing with its ends, always finite, and the upper above the lower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    spread: Spread,
    low: f64,
    high: f64,
}

impl Scale {
    /// A scale over all `values` that have a position, with the given ends.
    pub(super) fn over(spread: Spread, values: impl Iterator<Item = f64>, ends: (Option<f64>, Option<f64>)) -> Self {
        let has_place = |value: f64| value.is_finite() && (spread == Spread::Linear || value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.chain(ends.0).chain(ends.1).filter(|&value| has_place(value)) {
            low = low.min(value);
            high = high.max(value);
        }
        let low = ends.0.filter(|&end| has_place(end)).unwrap_or(low);
        let high = ends.1.filter(|&end| has_place(end)).unwrap_or(high);
        if !low.is_finite() || !high.is_finite() {
            return Self { spread, low: if spread == Spread::Log { 1.0 } else { 0.0 }, high: 10.0 };
        }
        let (low, high) = widened(spread, low, high);
        let low = if spread == Spread::Log { low.max(high * 10_f64.powi(-DECADES_MAX)) } else { low };
        Self { spread, low, high }
    }

    /// Position of the value, clamped to the ends; `None` if it has none.
    pub(super) fn position(&self, value: f64) -> Option<f64> {
        let share = match self.spread {
            Spread::Linear => (value - self.low) / (self.high - self.low),
            Spread::Log if value > 0.0 => (value / self.low).ln() / (self.high / self.low).ln(),
            Spread::Log => return None,
        };
        if share.is_nan() { None } else { Some(share.clamp(0.0, 1.0)) }
    }

    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Values to label, some `count` of them and never many more.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        match self.spread {
            Spread::Linear => linear_ticks(self.low, self.high, count),
            Spread::Log => log_ticks(self.low, self.high, count),
        }
    }

    /// The scale with room beyond its data, so that no mark touches the frame: up to the next tick, or on a logarithmic
    /// scale a little of its length.
    #[must_use]
    pub(super) fn roomy(self, count: usize) -> Self {
        if self.spread == Spread::Log {
            let room = (self.high / self.low).powf(0.05);
            return Self { low: self.low / room, high: self.high * room, ..self };
        }
        let step = nice_step(self.high - self.low, count);
        Self { low: (self.low / step).floor() * step, high: (self.high / step).ceil() * step, ..self }
    }
}

/// Those of `others` that an axis over `values` may be stretched for: at most a quarter of its length beyond its ends.
/// A wider interval would leave no room for its curve.
pub(super) fn within_reach(spread: Spread, values: &[f64], others: Vec<f64>) -> Vec<f64> {
    let flat = |value: f64| if spread == Spread::Log { value.ln() } else { value };
    let places = || values.iter().map(|&value| flat(value)).filter(|place| place.is_finite());
    let (low, high) = (places().fold(f64::INFINITY, f64::min), places().fold(f64::NEG_INFINITY, f64::max));
    if low > high {
        return others;
    }
    // A flat curve has room for intervals of a quarter of its height.
    let length = match spread {
        Spread::Linear => (high - low).max(high.abs()),
        Spread::Log => (high - low).max(1.0),
    };
    let reach = low - length / 4.0..=high + length / 4.0;
    others.into_iter().filter(|&other| reach.contains(&flat(other))).collect()
}

/// Moves ends apart that are too close.
fn widened(spread: Spread, low: f64, high: f64) -> (f64, f64) {
    match spread {
        // Closer than this, ticks would have equal digits in a double.
        Spread::Linear if high - low > (high.abs().max(low.abs())) * 1e-9 => (low, high.min(f64::MAX / 4.0)),
        Spread::Linear if low == 0.0 => (0.0, 1.0),
        Spread::Linear => (low - low.abs() * 0.1, high + high.abs() * 0.1),
        Spread::Log if high / low > 1.2 => (low, high),
        Spread::Log => (low / 1.5, high * 1.5),
    }
}

/// A step of 1, 2 or 5 times a power of ten, so that some `count` of them fill the span.
fn nice_step(span: f64, count: usize) -> f64 {
    let rough = (span / real(count.max(1))).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    // The nearest by ratio: half as many or twice as many ticks look equally wrong.
    let apart = |factor: &f64| (factor * power / rough).ln().abs();
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().min_by(|one, other| apart(one).total_cmp(&apart(other)));
    let step = factor.unwrap_or(1.0) * power;
    if step.is_normal() { step } else { span.max(f64::MIN_POSITIVE) }
}

fn linear_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let step = nice_step(high - low, count);
    let first = (low / step - 1e-6).ceil();
    // Multiples rather than sums: sums drift, and 0 would become 1e-17.
    (0..=count * 2 + 2)
        .map(|index| (first + real(index)) * step)
        .take_while(|&tick| tick <= high + step * 1e-6)
        .map(|tick| if tick.abs() < step * 1e-6 { 0.0 } else { tick })
        .collect()
}

fn log_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let (first, last) = (exponent(low) - 1, exponent(high) + 1);
    let decades = (high / low).log10();
    let within = |tick: &f64| *tick >= low * 0.999 && *tick <= high * 1.001;
    let with = |factors: &[f64]| -> Vec<f64> {
        (first..=last)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
            .filter(within)
            .collect()
    };
    for factors in [&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0][..], &[1.0, 2.0, 5.0], &[1.0, 3.0]] {
        let ticks = with(factors);
        if (3..=count).contains(&ticks.len()) {
            return ticks;
        }
    }
    if decades < 1.0 {
        return linear_ticks(low, high, count.min(4));
    }
    let powers = with(&[1.0]);
    let every = powers.len().div_ceil(count.max(1)).max(1);
    powers.into_iter().step_by(every).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "a logarithm of a finite number is at most 308")]
fn exponent(value: f64) -> i32 {
    value.log10().floor() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(low: f64, high: f64) -> Scale {
        Scale::over(Spread::Linear, [low, high].into_iter(), (None, None))
    }

    fn log(low: f64, high: f64) -> Scale {
        Scale::over(Spread::Log, [low, high].into_iter(), (None, None))
    }

    #[test]
    fn linear_ticks_are_round_and_zero_is_zero() {
        assert_eq!(linear(0.0, 10.0).ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(linear(-0.2, 0.2).ticks(4), [-0.2, -0.1, 0.0, 0.1, 0.2]);
        assert_eq!(linear(3.0, 97.0).ticks(4), [20.0, 40.0, 60.0, 80.0]);
    }

    #[test]
    fn log_ticks_are_powers_of_ten_and_closer_where_there_is_room() {
        assert_eq!(log(1.0, 1e6).ticks(7), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        assert_eq!(log(10.0, 400.0).ticks(6), [10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(log(1.0, 1e12).ticks(5), [1.0, 1e3, 1e6, 1e9, 1e12]);
    }

    #[test]
    fn any_scale_has_finite_ends_few_ticks_and_places_within_the_axis() {
        let ends = [f64::NAN, f64::NEG_INFINITY, -1e300, -1.0, 0.0, 1e-300, 1e-9, 1.0, 1.000_000_001, 1e18, 1e300];
        for spread in [Spread::Linear, Spread::Log] {
            for low in ends {
                for high in ends {
                    let scale = Scale::over(spread, [low, high].into_iter(), (None, None));
                    assert!(scale.low.is_finite() && scale.high.is_finite() && scale.low < scale.high);
                    for count in [0, 1, 5, 10] {
                        let ticks = scale.ticks(count);
                        assert!(ticks.len() <= 2 * count + 4, "{spread:?} {low} {high} {count}: {ticks:?}");
                        assert!(
                            ticks.iter().all(|tick| scale.position(*tick).is_some_and(|at| (0.0..=1.0).contains(&at)))
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn an_axis_is_stretched_for_intervals_near_its_values_and_not_for_wide_ones() {
        let reach = |spread, others: &[f64]| within_reach(spread, &[100.0, 200.0], others.to_vec());
        assert_eq!(reach(Spread::Linear, &[60.0, 240.0]), [60.0, 240.0]);
        assert_eq!(reach(Spread::Linear, &[-9_000.0, 9_000.0]), [] as [f64; 0]);
        assert_eq!(reach(Spread::Log, &[0.0, 1.0, 90.0, 250.0, 1e6]), [90.0, 250.0]);
        assert_eq!(within_reach(Spread::Linear, &[], vec![1e6]), [1e6]);
    }

    #[test]
    fn values_without_a_place_have_none() {
        assert_eq!(log(1.0, 10.0).position(0.0), None);
        assert_eq!(log(1.0, 10.0).position(-5.0), None);
        assert_eq!(linear(0.0, 1.0).position(f64::NAN), None);
        assert_eq!(linear(0.0, 1.0).position(7.0), Some(1.0));
    }

    #[test]
    fn one_value_alone_is_in_the_middle_of_an_axis() {
        let at = log(250.0, 250.0).position(250.0).expect("it is on the scale");
        assert!((at - 0.5).abs() < 1e-9);
        assert!(linear(0.0, 0.0).position(0.0) == Some(0.0));
    }
}
