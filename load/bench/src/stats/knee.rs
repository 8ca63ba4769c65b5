//! The point beyond which more load hardly pays.

use serde::Serialize;

use crate::report::units::real;

const POINTS_MIN: usize = 4;

/// Kneedle's sensitivity: how many mean steps the curve must fall below its highest point before that is a knee; 1 is
/// what its authors found best for complete data.
const SENSITIVITY: f64 = 1.0;

/// Index of the knee of a curve that rises and flattens; `None` if it rises evenly, or hardly at all.
///
/// Kneedle (Satopää, Albrecht, Irwin, Raghavan, "Finding a 'Kneedle' in a haystack", ICDCS workshops 2011) without its
/// smoothing, since the points are few and each is a mean of runs: both axes go from 0 to 1, and a knee is a local
/// maximum of the height above the diagonal after which the curve falls by the threshold. Of several, which noise
/// makes, it is the highest.
pub(crate) fn kneedle(points: &[(f64, f64)]) -> Option<usize> {
    if points.len() < POINTS_MIN {
        return None;
    }
    let x = normalised(points.iter().map(|point| point.0).collect())?;
    let y = normalised(points.iter().map(|point| point.1).collect())?;
    let heights: Vec<f64> = x.iter().zip(&y).map(|(x, y)| y - x).collect();
    let step = 1.0 / (real(points.len()) - 1.0);
    let is_maximum = |at: usize| heights[at] > heights[at - 1] && heights[at] >= heights[at + 1];
    (1..points.len() - 1)
        .filter(|&at| is_maximum(at) && heights[at] > 0.0)
        .filter(|&at| {
            // Only up to the next local maximum, which is then the candidate.
            let end = (at + 1..points.len() - 1).find(|&later| is_maximum(later)).unwrap_or(points.len());
            heights[at + 1..end].iter().any(|height| *height < heights[at] - SENSITIVITY * step)
        })
        .max_by(|&a, &b| heights[a].total_cmp(&heights[b]))
}

/// Normalises to 0 to 1; `None` if all values are equal or one is NaN.
fn normalised(values: Vec<f64>) -> Option<Vec<f64>> {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = high - low;
    let usable = range > 0.0 && range.is_finite() && values.iter().all(|value| value.is_finite());
    usable.then(|| values.into_iter().map(|value| (value - low) / range).collect())
}

/// Minimum share of the requested rate for it to count as served.
pub(crate) const ACHIEVED_MIN: f64 = 0.99;

/// True if a rate was reached in a run of this length. Poisson arrivals fall short by chance; three standard deviations of
/// their number are allowed. NaN was not reached.
pub(crate) fn is_reached(achieved: f64, asked: f64, seconds: f64) -> bool {
    let chance = 3.0 * (asked * seconds).max(1.0).sqrt() / seconds.max(1e-9);
    achieved >= asked * ACHIEVED_MIN - chance
}

/// Maximum ratio of a served rate's p99 to the unloaded p99. In a queue with exponential times the ratio is ten when
/// the server is busy nine tenths of its time: beyond that it is full.
pub(crate) const P99_FACTOR_MAX: f64 = 10.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AtRate {
    pub(crate) asked: f64,
    pub(crate) achieved: f64,
    /// Over so long, all runs together.
    pub(crate) seconds: f64,
    /// 99th percentile of the response times.
    pub(crate) p99_us: f64,
}

/// The rates that were served.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Served {
    /// Highest rate up to which every one was served; `None` if not even the lowest was.
    pub(crate) last: Option<f64>,
    /// First rate that was not served, and the reason; `None` if all were.
    pub(crate) first_refused: Option<(f64, Refusal)>,
}

/// Reason that a rate does not count as served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Refusal {
    /// See [`ACHIEVED_MIN`].
    NotReached,
    /// See [`P99_FACTOR_MAX`].
    TooSlow,
}

/// The last served rate, from points in ascending order of rate; the lowest rate's p99 counts as the unloaded one.
pub(crate) fn last_served(points: &[AtRate]) -> Served {
    let mut last = None;
    for point in points {
        // Written so that NaN counts as not served.
        let reached = is_reached(point.achieved, point.asked, point.seconds);
        let quick = point.p99_us <= P99_FACTOR_MAX * points[0].p99_us;
        match (reached, quick) {
            (true, true) => last = Some(point.asked),
            (false, _) => return Served { last, first_refused: Some((point.asked, Refusal::NotReached)) },
            (true, false) => return Served { last, first_refused: Some((point.asked, Refusal::TooSlow)) },
        }
    }
    Served { last, first_refused: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knee_of(x: impl IntoIterator<Item = f64>, y: impl Fn(f64) -> f64) -> Option<f64> {
        let points: Vec<_> = x.into_iter().map(|x| (x, y(x))).collect();
        kneedle(&points).map(|at| points[at].0)
    }

    #[test]
    fn the_knee_of_the_papers_example_is_where_the_paper_has_it() {
        // Figure 2: y = 5 − 1/(x + 0.1) at ten places from 0 to 1; the knee is at 0.22.
        let knee = knee_of((0..10).map(|at| f64::from(at) / 9.0), |x| 5.0 - 1.0 / (x + 0.1)).expect("a knee");
        assert!((knee - 0.222).abs() < 0.001, "{knee}");
    }

    #[test]
    fn the_knee_of_a_curve_with_a_corner_is_the_corner() {
        assert_eq!(knee_of((1..=20).map(f64::from), |clients| clients.min(6.0) * 100.0), Some(6.0));
        // Falling after the corner changes nothing.
        assert_eq!(knee_of((1..=20).map(f64::from), |n| if n <= 6.0 { n * 100.0 } else { 630.0 - 5.0 * n }), Some(6.0));
    }

    #[test]
    fn straight_flat_and_short_curves_have_no_knee() {
        assert_eq!(knee_of((1..=20).map(f64::from), |clients| clients * 3.0), None);
        assert_eq!(knee_of((1..=20).map(f64::from), |_| 7.0), None);
        assert_eq!(knee_of([1.0, 2.0, 3.0], |clients| clients.min(2.0)), None);
        assert_eq!(knee_of([1.0, 2.0, 3.0, 4.0], |_| f64::NAN), None);
        // A ripple of 1% on a straight line.
        assert_eq!(knee_of((1..=20).map(f64::from), |n| n * if n % 2.0 == 0.0 { 1.01 } else { 0.99 }), None);
    }

    fn served(points: &[(f64, f64, f64)]) -> Served {
        let points: Vec<_> =
            points.iter().map(|&(asked, achieved, p99_us)| AtRate { asked, achieved, seconds: 1e6, p99_us }).collect();
        last_served(&points)
    }

    #[test]
    fn a_rate_is_served_when_it_is_reached_and_quick() {
        let all = served(&[(100.0, 100.0, 50.0), (200.0, 198.5, 60.0)]);
        assert_eq!(all, Served { last: Some(200.0), first_refused: None });
        let slow = served(&[(100.0, 100.0, 50.0), (200.0, 200.0, 501.0), (300.0, 300.0, 50.0)]);
        assert_eq!(slow, Served { last: Some(100.0), first_refused: Some((200.0, Refusal::TooSlow)) });
        let short = served(&[(100.0, 98.0, 50.0)]);
        assert_eq!(short, Served { last: None, first_refused: Some((100.0, Refusal::NotReached)) });
        let by_chance = AtRate { asked: 200.0, achieved: 193.0, seconds: 3.0, p99_us: 50.0 };
        assert_eq!(last_served(&[by_chance]).last, Some(200.0), "21 of 600 arrivals fewer are chance");
        assert_eq!(last_served(&[AtRate { seconds: 300.0, ..by_chance }]).last, None);
        assert_eq!(served(&[]), Served { last: None, first_refused: None });
    }
}
