//! The universal scalability law: throughput against the number of clients.
//!
//! X(N) = λN / (1 + σ(N − 1) + κN(N − 1)): λ is the throughput of one client, σ the serialised share and κ the cost of
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
    NotEnoughPoints {
        /// Numbers of clients with a throughput above 0.
        have: usize,
    },
    /// See [`DEVIATION_MAX`].
    #[error("the law does not fit: the points lie {:.0}% from the best curve", deviation * 100.0)]
    DoesNotFit {
        /// Of the best curve.
        deviation: f64,
    },
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
        Interval { estimate: parameters[at], low: parameters[at] - half, high: parameters[at] + half }
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

#[cfg(test)]
#[path = "usl_tests.rs"]
mod tests;
