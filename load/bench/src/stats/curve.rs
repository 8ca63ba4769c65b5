//! Curves of throughput: the universal scalability law, and the point beyond which more load hardly pays.
//!
//! The law is X(N) = λN / (1 + σ(N − 1) + κN(N − 1)): λ is the throughput of one client, σ the serialised share and κ the cost of
//! consistency between any two (Gunther, "Guerrilla Capacity Planning", 2007, chapters 4 to 6).
//!
//! Noise of throughput multiplies, so the fit is by least squares on logarithms: it starts from Gunther's linear form
//! (N/X is linear in 1/λ, σ/λ and κ/λ) and continues by Levenberg's and Marquardt's method (Marquardt, "An algorithm
//! for least-squares estimation of nonlinear parameters", SIAM 1963). Each number of clients counts once, by the
//! geometric mean of its runs: runs of one point share its distance from the law, and would make the intervals too
//! narrow. Intervals come from the covariance, with Student's distribution; the peak's is Fieller's ("Some problems in
//! interval estimation", JRSS B 1954), without an upper end where κ may be 0.

use serde::Serialize;
use thiserror::Error;

use super::interval::{Interval, geometric_mean, mean, student_t};
use crate::report::units::real;

/// Minimum number of different client counts: the law has three parameters, and one more point shows how well it fits.
pub(crate) const POINTS_MIN: usize = 4;

/// Typical relative distance of the points from the curve beyond which the law does not describe them.
pub(crate) const DEVIATION_MAX: f64 = 0.1;

/// Maximum steps of the fit; it needs about ten.
const STEPS_MAX: usize = 200;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Usl {
    pub(crate) lambda: Interval,
    /// Contention: the serialised share of the work; 0 or more.
    pub(crate) sigma: Interval,
    /// Coherence: the cost of keeping any two clients consistent; 0 or more.
    pub(crate) kappa: Interval,
    /// Number of clients beyond which throughput falls; `None` if κ is 0.
    pub(crate) peak: Option<Peak>,
    /// Share of the throughputs' variance that the curve explains; at most 1, and small where there is hardly any.
    pub(crate) r_squared: f64,
    /// Typical relative distance of a point from the curve.
    pub(crate) deviation: f64,
    pub(crate) confidence: f64,
}

/// The number of clients with the highest throughput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Peak {
    /// √((1 − σ) / κ), at least 1.
    pub(crate) clients: f64,
    /// Lower end of its interval; `None` if κ is too uncertain.
    pub(crate) low: Option<f64>,
    /// Upper end; `None` if throughput may rise without end.
    pub(crate) high: Option<f64>,
}

/// Failure to fit the law.
#[derive(Clone, Debug, PartialEq, Error)]
pub(crate) enum NoFit {
    /// See [`POINTS_MIN`].
    #[error("there are too few points: {have} different numbers of clients, and at least {POINTS_MIN} are needed")]
    NotEnoughPoints { have: usize },
    /// See [`DEVIATION_MAX`].
    #[error("the law does not fit: the points lie {:.0}% from the best curve", deviation * 100.0)]
    DoesNotFit { deviation: f64 },
}

impl Usl {
    /// Throughput with this many clients.
    pub(crate) fn throughput(&self, clients: f64) -> f64 {
        let parameters = [self.lambda.estimate.ln(), self.sigma.estimate, self.kappa.estimate];
        predicted(parameters, clients).exp()
    }
}

/// Fits the law to `points` of clients and throughput; points with the same number of clients are runs of one.
pub(crate) fn fit(points: &[(u32, f64)], confidence: f64) -> Result<Usl, NoFit> {
    let points = means(points);
    if points.len() < POINTS_MIN {
        return Err(NoFit::NotEnoughPoints { have: points.len() });
    }
    let parameters = best(&points);
    let squares = squares(&points, parameters);
    let degrees = real(points.len()) - 3.0;
    let deviation = (squares / real(points.len())).sqrt();
    if !deviation.is_finite() || deviation > DEVIATION_MAX {
        return Err(NoFit::DoesNotFit { deviation });
    }
    let covariance = covariance(&points, parameters, squares / degrees);
    let student = student_t(confidence, degrees);
    let interval = |at: usize| {
        let half = student * covariance[at][at].max(0.0).sqrt();
        Interval::around(parameters[at], half)
    };
    let not_below_zero = |interval: Interval| Interval { low: interval.low.max(0.0), ..interval };
    Ok(Usl {
        lambda: interval(0).exp(),
        sigma: not_below_zero(interval(1)),
        kappa: not_below_zero(interval(2)),
        peak: peak(parameters, covariance, student),
        r_squared: r_squared(&points, parameters),
        deviation,
        confidence,
    })
}

/// λ as its logarithm, σ, κ.
type Parameters = [f64; 3];
type Matrix = [[f64; 3]; 3];

/// A number of clients and the logarithm of its throughput.
type Point = (f64, f64);

fn means(points: &[(u32, f64)]) -> Vec<Point> {
    let mut grouped = std::collections::BTreeMap::<u32, Vec<f64>>::new();
    for &(clients, throughput) in points {
        if clients > 0 && throughput > 0.0 && throughput.is_finite() {
            grouped.entry(clients).or_default().push(throughput);
        }
    }
    grouped.into_iter().map(|(clients, runs)| (f64::from(clients), geometric_mean(&runs).ln())).collect()
}

/// Divisor of the law, which gives no throughput unless it is above 0.
fn divisor([_, sigma, kappa]: Parameters, clients: f64) -> f64 {
    1.0 + sigma * (clients - 1.0) + kappa * clients * (clients - 1.0)
}

/// Logarithm of the throughput; NaN unless the divisor is above 0.
fn predicted(parameters: Parameters, clients: f64) -> f64 {
    parameters[0] + clients.ln() - divisor(parameters, clients).ln()
}

fn gradient(parameters: Parameters, clients: f64) -> [f64; 3] {
    let divisor = divisor(parameters, clients);
    [1.0, -(clients - 1.0) / divisor, -clients * (clients - 1.0) / divisor]
}

fn squares(points: &[Point], parameters: Parameters) -> f64 {
    let squares: f64 = points.iter().map(|&(clients, log)| (log - predicted(parameters, clients)).powi(2)).sum();
    if squares.is_nan() { f64::INFINITY } else { squares }
}

/// The best of the fits with σ, κ, both or neither held at 0, among those with σ ≥ 0 and κ ≥ 0: with only two bounds
/// that is the constrained optimum.
fn best(points: &[Point]) -> Parameters {
    let start = linear_start(points);
    let mut best = (f64::INFINITY, start);
    for free in [[true, true, true], [true, true, false], [true, false, true], [true, false, false]] {
        let mut from = start;
        for at in 1..3 {
            from[at] = if free[at] { from[at].max(1e-6) } else { 0.0 };
        }
        let fitted = descend(points, from, free);
        let squares = squares(points, fitted);
        if fitted[1] >= 0.0 && fitted[2] >= 0.0 && squares < best.0 {
            best = (squares, fitted);
        }
    }
    best.1
}

/// Gunther's linear form, each equation divided by N/X so that errors are relative.
fn linear_start(points: &[Point]) -> Parameters {
    let row = |&(clients, log): &Point| {
        let scale = log.exp() / clients;
        ([scale, scale * (clients - 1.0), scale * clients * (clients - 1.0)], 1.0)
    };
    let (normal, right) = equations(points.iter().map(row));
    match solve(normal, right) {
        Some([inverse, sigma, kappa]) if inverse > 0.0 => {
            [-inverse.ln(), (sigma / inverse).max(0.0), (kappa / inverse).max(0.0)]
        }
        _ => [mean(&points.iter().map(|(clients, log)| log - clients.ln()).collect::<Vec<_>>()), 0.0, 0.0],
    }
}

/// Levenberg's and Marquardt's method over the free parameters.
fn descend(points: &[Point], mut at: Parameters, free: [bool; 3]) -> Parameters {
    let mut damping = 1e-3;
    let mut least = squares(points, at);
    for _ in 0..STEPS_MAX {
        let (mut normal, right) = around(points, at, free);
        for parameter in 0..3 {
            // A fixed parameter has an equation of its own: no step.
            normal[parameter][parameter] *= 1.0 + damping;
            normal[parameter][parameter] += f64::from(u8::from(!free[parameter]));
        }
        let Some(step) = solve(normal, right) else { return at };
        let next = std::array::from_fn(|parameter| at[parameter] + step[parameter]);
        let squares = squares(points, next);
        if squares <= least {
            let settled = least - squares <= 1e-14 * least;
            (at, least) = (next, squares);
            damping = (damping / 10.0_f64).max(1e-12);
            if settled {
                return at;
            }
        } else {
            damping *= 10.0;
            if damping > 1e12 {
                return at;
            }
        }
    }
    at
}

/// Equations of a step from these parameters, over the free ones.
fn around(points: &[Point], at: Parameters, free: [bool; 3]) -> (Matrix, Parameters) {
    equations(points.iter().map(|&(clients, log)| {
        let gradient = gradient(at, clients);
        let row = std::array::from_fn(|parameter| if free[parameter] { gradient[parameter] } else { 0.0 });
        (row, log - predicted(at, clients))
    }))
}

/// Normal equations of least squares, from rows and their target values.
fn equations(rows: impl Iterator<Item = ([f64; 3], f64)>) -> (Matrix, [f64; 3]) {
    let (mut normal, mut right) = (Matrix::default(), [0.0; 3]);
    for (row, value) in rows {
        for i in 0..3 {
            for j in 0..3 {
                normal[i][j] += row[i] * row[j];
            }
            right[i] += row[i] * value;
        }
    }
    (normal, right)
}

/// Solves symmetric equations by Cholesky's method after scaling rows and columns: κ is smaller than λ by many powers
/// of ten. `None` without a unique solution.
fn solve(matrix: Matrix, right: [f64; 3]) -> Option<[f64; 3]> {
    let scale: [f64; 3] = std::array::from_fn(|at| matrix[at][at].sqrt());
    let (mut lower, mut found) = (Matrix::default(), [0.0; 3]);
    for i in 0..3 {
        let sum = |lower: &Matrix, j: usize| (0..j).map(|k| lower[i][k] * lower[j][k]).sum::<f64>();
        for j in 0..i {
            lower[i][j] = (matrix[i][j] / (scale[i] * scale[j]) - sum(&lower, j)) / lower[j][j];
        }
        let left = 1.0 - sum(&lower, i);
        // Also if a scale is 0 or infinite, which leads to NaN.
        if !(left > 1e-14 && scale[i].is_normal()) {
            return None;
        }
        lower[i][i] = left.sqrt();
        found[i] = (right[i] / scale[i] - (0..i).map(|k| lower[i][k] * found[k]).sum::<f64>()) / lower[i][i];
    }
    for i in (0..3).rev() {
        found[i] = (found[i] - (i + 1..3).map(|k| lower[k][i] * found[k]).sum::<f64>()) / lower[i][i];
    }
    Some(std::array::from_fn(|at| found[at] / scale[at]))
}

/// Covariance of all three parameters, even if one lies at its bound: its interval then shows how far from 0 it may be.
/// Infinite if the points do not determine the parameters.
fn covariance(points: &[Point], at: Parameters, noise: f64) -> Matrix {
    let (normal, _) = around(points, at, [true; 3]);
    std::array::from_fn(|parameter| {
        let unit = std::array::from_fn(|i| f64::from(u8::from(i == parameter)));
        solve(normal, unit).map_or([f64::INFINITY; 3], |column| column.map(|value| value * noise))
    })
}

/// The peak, at m = N² where 1 − σ − mκ is 0; its interval holds those m for which that is within the noise of 0.
fn peak([_, sigma, kappa]: Parameters, covariance: Matrix, student: f64) -> Option<Peak> {
    if kappa <= 0.0 {
        return None;
    }
    let clients = |squared: f64| squared.max(1.0).sqrt();
    let t2 = student * student;
    // a·m² − 2·b·m + c ≤ 0
    let a = kappa * kappa - t2 * covariance[2][2];
    let b = (1.0 - sigma) * kappa + t2 * covariance[1][2];
    let c = (1.0 - sigma).powi(2) - t2 * covariance[1][1];
    let root = (b * b - a * c).max(0.0).sqrt();
    // With a ≤ 0, κ may be 0: the set of m has no upper end. c / (b + root) is the root (b − root) / a.
    let low = (b + root > 0.0).then(|| clients(c / (b + root)));
    let high = (a > 0.0).then(|| clients((b + root) / a));
    let finite = |end: Option<f64>| end.filter(|end| end.is_finite());
    Some(Peak { clients: clients((1.0 - sigma) / kappa), low: finite(low), high: finite(high) })
}

fn r_squared(points: &[Point], parameters: Parameters) -> f64 {
    let throughputs: Vec<f64> = points.iter().map(|(_, log)| log.exp()).collect();
    let mean = mean(&throughputs);
    let total: f64 = throughputs.iter().map(|throughput| (throughput - mean).powi(2)).sum();
    let left: f64 =
        points.iter().map(|&(clients, log)| (log.exp() - predicted(parameters, clients).exp()).powi(2)).sum();
    1.0 - left / total
}

/// Minimum number of points of a curve with a knee.
const KNEE_POINTS_MIN: usize = 4;

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
    if points.len() < KNEE_POINTS_MIN {
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
    use crate::stats::order::Orders;

    const TRUE: (f64, f64, f64) = (1_000.0, 0.05, 0.001);

    fn law((lambda, sigma, kappa): (f64, f64, f64), clients: u32) -> f64 {
        let n = f64::from(clients);
        lambda * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))
    }

    fn noisy(
        truth: (f64, f64, f64),
        clients: impl IntoIterator<Item = u32>,
        noise: f64,
        random: &mut Orders,
    ) -> Vec<(u32, f64)> {
        clients.into_iter().map(|clients| (clients, law(truth, clients) * (noise * random.normal()).exp())).collect()
    }

    #[test]
    fn exact_points_give_the_parameters_back() {
        for truth in [TRUE, (5.0, 0.4, 0.0), (1e6, 0.0, 0.02), (3.0, 0.0, 0.0), (800.0, 0.99, 1e-6)] {
            let points: Vec<_> = [1, 2, 3, 5, 8, 13, 21, 34].map(|clients| (clients, law(truth, clients))).into();
            let usl = fit(&points, 0.95).expect("exact points fit");
            assert!((usl.lambda.estimate / truth.0 - 1.0).abs() < 1e-6, "{truth:?}: {usl:?}");
            assert!((usl.sigma.estimate - truth.1).abs() < 1e-6, "{truth:?}: {usl:?}");
            assert!((usl.kappa.estimate - truth.2).abs() < 1e-7, "{truth:?}: {usl:?}");
            assert!(usl.r_squared > 0.999_999, "{truth:?}: {usl:?}");
            for (clients, throughput) in points {
                assert!((usl.throughput(f64::from(clients)) / throughput - 1.0).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn a_fit_of_published_data_agrees_with_scipy() {
        // SPEC SDM91, from Gunther's books and the R package `usl`; the expected figures are scipy 1.17's curve_fit on
        // logarithms with its covariance and t(0.975, 4). The package fits the throughputs themselves: peak 96.5, and a
        // single client's throughput of 90.0 where 64.9 was measured, because there a small point counts for little.
        let points = [(1, 64.9), (18, 995.9), (36, 1652.4), (72, 1853.2), (108, 1828.9), (144, 1775.0), (216, 1702.2)];
        let usl = fit(&points, 0.95).expect("the law fits");
        let near = |interval: Interval, low: f64, estimate: f64, high: f64| {
            let near = |actual: f64, expected: f64| (actual / expected - 1.0).abs() < 1e-5;
            assert!(
                near(interval.low, low) && near(interval.estimate, estimate) && near(interval.high, high),
                "{usl:?}"
            );
        };
        near(usl.lambda, 56.441_461, 67.942_323, 81.786_671);
        near(usl.sigma, 0.002_229_555_6, 0.013_452_47, 0.024_675_390);
        near(usl.kappa, 0.000_055_080_691, 0.000_115_110_08, 0.000_175_139_47);
        let peak = usl.peak.expect("throughput falls");
        assert!((peak.clients - 92.576_8).abs() < 0.001, "{usl:?}");
        assert!(peak.low.expect("a lower end") < 96.5 && peak.high.expect("an upper end") > 96.5, "{usl:?}");
    }

    #[test]
    fn intervals_hold_the_true_parameters_as_often_as_said() {
        let mut random = Orders::new(2);
        let peak = ((1.0 - TRUE.1) / TRUE.2).sqrt();
        let mut held = [0; 4];
        for _ in 0..2_000 {
            let usl = fit(&noisy(TRUE, (1..=40).step_by(3), 0.02, &mut random), 0.95).expect("the law fits");
            held[0] += u32::from(usl.lambda.contains(TRUE.0));
            held[1] += u32::from(usl.sigma.contains(TRUE.1));
            held[2] += u32::from(usl.kappa.contains(TRUE.2));
            let Some(seen) = usl.peak else { continue };
            held[3] += u32::from(seen.low.is_none_or(|low| low <= peak) && seen.high.is_none_or(|high| high >= peak));
        }
        // Binomial(2000, 0.95): mean 1,900, deviation 9.7; the law is not linear, so somewhat more than four of them.
        assert!(held.iter().all(|held| (1_850..=1_950).contains(held)), "{held:?}");
    }

    #[test]
    fn where_nothing_is_spent_on_agreeing_the_interval_reaches_zero_and_the_peak_has_no_upper_end() {
        let mut random = Orders::new(3);
        for _ in 0..50 {
            let usl = fit(&noisy((1_000.0, 0.2, 0.0), 1..=20, 0.01, &mut random), 0.999).expect("the law fits");
            assert!(usl.kappa.low <= 0.0 && usl.sigma.contains(0.2), "{usl:?}");
            assert!(usl.peak.is_none_or(|peak| peak.high.is_none()), "{usl:?}");
        }
    }

    #[test]
    fn runs_of_one_point_count_once() {
        let mut random = Orders::new(4);
        let points = noisy(TRUE, [1, 4, 9, 16, 25, 36], 0.02, &mut random);
        let once = fit(&points, 0.95).expect("the law fits");
        let thrice = fit(&points.repeat(3), 0.95).expect("the law fits");
        assert!((once.sigma.high - thrice.sigma.high).abs() < 1e-9, "{once:?} {thrice:?}");
    }

    #[test]
    fn too_few_points_and_points_of_another_shape_are_said_to_be_so() {
        let few = [(1, 10.0), (2, 19.0), (2, 20.0), (3, 27.0), (4, 0.0), (0, 5.0)];
        assert_eq!(fit(&few, 0.95).expect_err("three points"), NoFit::NotEnoughPoints { have: 3 });
        let zigzag: Vec<_> = (1..=20).map(|clients| (clients, if clients % 2 == 0 { 100.0 } else { 400.0 })).collect();
        let error = fit(&zigzag, 0.95).expect_err("no law");
        assert!(
            matches!(error, NoFit::DoesNotFit { .. }) && error.to_string().contains("% from the best curve"),
            "{error}"
        );
    }

    mod any {
        use proptest::prelude::*;

        use super::super::*;

        proptest! {
            #[test]
            fn points_never_panic_and_what_is_fitted_respects_the_bounds(
                points in proptest::collection::vec((0_u32..2_000, prop_oneof![Just(0.0), 1e-9..1e12_f64]), 0..24)
            ) {
                if let Ok(usl) = fit(&points, 0.99) {
                    prop_assert!(usl.sigma.estimate >= 0.0 && usl.kappa.estimate >= 0.0 && usl.lambda.estimate > 0.0);
                    prop_assert!(usl.sigma.low >= 0.0 && usl.kappa.low >= 0.0);
                    prop_assert!(usl.peak.is_none_or(|peak| peak.clients >= 1.0));
                }
            }
        }
    }
}

#[cfg(test)]
mod knee_tests {
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
