//! The points of a sweep, from a range such as `1..20` or a list.

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;

use crate::report::units::real;

pub(super) const POINTS_MAX: usize = 200;

/// Default number of points for a range of more whole numbers than this.
const POINTS_DEFAULT: usize = 20;

/// Default number of points for a range of rates.
const RATES_DEFAULT: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Axis {
    Clients,
    Rate,
}

impl Axis {
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Clients => "--clients",
            Self::Rate => "--rate",
        }
    }
}

/// The points that `text` (`1..20`, or `1,2,4,8`) names, ascending, each once.
pub(super) fn points(axis: Axis, text: &str, step: Option<f64>, count: Option<usize>) -> anyhow::Result<Vec<f64>> {
    let flag = axis.flag();
    let example = if axis == Axis::Clients { "1..20 or 1,2,4,8" } else { "1000..20000 or 1000,5000" };
    let value = |text: &str| {
        let value: f64 =
            text.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0).with_context(|| {
                format!("{flag} {text:?}: it must be a number above 0, in a range or list as {example}")
            })?;
        ensure!(axis == Axis::Rate || value.fract() == 0.0, "{flag} {text}: clients are counted in whole numbers");
        Ok(value)
    };
    let mut points = if let Some((from, to)) = text.split_once("..") {
        let (from, to) = (value(from)?, value(to)?);
        ensure!(from <= to, "{flag} {text}: the range ends before it begins; write it upwards, as {example}");
        range(axis, from, to, step, count)?
    } else {
        ensure!(step.is_none() && count.is_none(), "--step and --points divide a range, as {example}");
        text.split(',').take(POINTS_MAX + 1).map(value).collect::<anyhow::Result<Vec<f64>>>()?
    };
    points.sort_by(f64::total_cmp);
    points.dedup();
    ensure!(
        points.len() <= POINTS_MAX,
        "{flag} {text}: more than {POINTS_MAX} points; give a larger --step, or --points"
    );
    Ok(points)
}

fn range(axis: Axis, from: f64, to: f64, step: Option<f64>, count: Option<usize>) -> anyhow::Result<Vec<f64>> {
    let whole = |value: f64| if axis == Axis::Clients { value.round() } else { value };
    let spread = |count: usize| (0..count).map(|at| whole(from + (to - from) * real(at) / real(count - 1))).collect();
    Ok(match (step, count) {
        (Some(_), Some(_)) => bail!("--step and --points cannot both divide the range"),
        (Some(step), None) => {
            ensure!(step.is_finite() && step > 0.0, "--step {step}: it must be above 0");
            ensure!(axis == Axis::Rate || step.fract() == 0.0, "--step {step}: clients are counted in whole numbers");
            // One more than allowed is enough to report it; each is computed from the start, so errors do not add up.
            (0..=POINTS_MAX).map(|at| from + step * real(at)).take_while(|value| *value <= to * (1.0 + 1e-12)).collect()
        }
        (None, Some(count)) => {
            ensure!((2..=POINTS_MAX).contains(&count), "--points {count}: it must be between 2 and {POINTS_MAX}");
            spread(count)
        }
        (None, None) if from >= to => vec![from],
        (None, None) if axis == Axis::Rate => spread(RATES_DEFAULT),
        (None, None) if to - from < real(POINTS_DEFAULT) => {
            (0..POINTS_DEFAULT).map(|at| from + real(at)).take_while(|value| *value <= to).collect()
        }
        (None, None) => spread(POINTS_DEFAULT),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(axis: Axis, text: &str, step: Option<f64>, count: Option<usize>, expected: &[f64]) {
        let points = points(axis, text, step, count).unwrap_or_else(|error| panic!("{text}: {error:#}"));
        assert_eq!(points, expected, "{text}");
    }

    #[test]
    fn ranges_and_lists_are_read() {
        check(Axis::Clients, "1..5", None, None, &[1.0, 2.0, 3.0, 4.0, 5.0]);
        check(Axis::Clients, "1..20", Some(5.0), None, &[1.0, 6.0, 11.0, 16.0]);
        check(Axis::Clients, "1..10", None, Some(4), &[1.0, 4.0, 7.0, 10.0]);
        check(Axis::Clients, "1..3", None, Some(9), &[1.0, 2.0, 3.0]);
        check(Axis::Clients, "8, 1,2,2", None, None, &[1.0, 2.0, 8.0]);
        check(Axis::Clients, "7..7", None, None, &[7.0]);
        check(Axis::Rate, "100..300", None, Some(3), &[100.0, 200.0, 300.0]);
        check(Axis::Rate, "0.5..1", Some(0.1), None, &[0.5, 0.6, 0.7, 0.8, 0.9, 1.0]);
        assert_eq!(points(Axis::Clients, "1..1000", None, None).expect("points").len(), POINTS_DEFAULT);
        assert_eq!(points(Axis::Rate, "1..1000", None, None).expect("points").len(), RATES_DEFAULT);
        assert_eq!(points(Axis::Clients, "1..200", Some(1.0), None).expect("points").len(), POINTS_MAX);
    }

    #[test]
    fn what_is_no_range_is_refused_with_what_would_be() {
        for (axis, text, step, count, expected) in [
            (Axis::Clients, "0..5", None, None, "--clients \"0\": it must be a number above 0"),
            (Axis::Clients, "a..5", None, None, "in a range or list as 1..20"),
            (Axis::Clients, "", None, None, "it must be a number above 0"),
            (Axis::Clients, "1.5..5", None, None, "whole numbers"),
            (Axis::Clients, "5..1", None, None, "ends before it begins"),
            (Axis::Clients, "1..201", Some(1.0), None, "more than 200 points"),
            (Axis::Clients, "1..5", Some(0.5), None, "whole numbers"),
            (Axis::Clients, "1..5", Some(0.0), None, "--step 0: it must be above 0"),
            (Axis::Clients, "1..5", None, Some(1), "--points 1: it must be between 2 and 200"),
            (Axis::Clients, "1..5", Some(1.0), Some(3), "cannot both"),
            (Axis::Clients, "1,5", Some(1.0), None, "divide a range"),
            (Axis::Rate, "-1..5", None, None, "must be a number above 0"),
            (Axis::Rate, "1..inf", None, None, "must be a number above 0, in a range or list as 1000..20000"),
        ] {
            let error = points(axis, text, step, count).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
