//! Whether a run's figures can be believed. A figure of a client that was too slow says nothing of the server.
//!
//! Must not know how a run was made, only what was asked for and what was seen.

use crate::plan::{End, Pace, Plan};
use crate::report::model::Verdict;

/// A worker that was running for more than this share of the time had none left to be idle in: the client was the
/// bottleneck, or may have been.
pub const BUSY_MAX: f64 = 0.95;

/// Share of the machine's time that other virtual machines may have had.
pub const STOLEN_MAX: f64 = 0.02;

/// Share of the asked rate that must be reached.
pub const RATE_MIN: f64 = 0.99;

/// Growth of the send lag, from the first quarter of a run to the last, that is no accident: a queue grew.
pub const LAG_GROWTH_MAX_US: f64 = 1_000.0;

/// What was seen of a run.
#[derive(Debug)]
pub struct Seen<'a> {
    /// What was asked for.
    pub plan: &'a Plan,
    /// Answers a second.
    pub rate: f64,
    /// Time measured.
    pub seconds: f64,
    /// Largest share of its time that a worker was running.
    pub busy_max: f64,
    /// Share of the machine's time that was stolen.
    pub stolen: f64,
    /// Median send lag by time, in microseconds.
    pub lag_by_time: Vec<f64>,
    /// Requests measured.
    pub requests: u64,
    /// Those that failed.
    pub errors: u64,
    /// Rows of requests that the writer did not take.
    pub rows_lost: u64,
}

/// The reasons not to believe it.
pub fn judge(seen: &Seen<'_>) -> Verdict {
    let mut reasons = Vec::new();
    if seen.requests == 0 {
        reasons.push("no request was measured".to_owned());
    } else if seen.errors == seen.requests {
        reasons.push("every request failed".to_owned());
    }
    if seen.busy_max > BUSY_MAX {
        reasons.push(format!(
            "the client was the bottleneck: a worker was busy for {:.0}% of the time (at most {:.0}%); use more workers \
             or a lower rate",
            seen.busy_max * 100.0,
            BUSY_MAX * 100.0
        ));
    }
    if let Pace::Open { profile, .. } = &seen.plan.pace {
        let asked = match seen.plan.end {
            End::After(duration) => profile.due_between(0.0, duration.as_secs_f64()) / duration.as_secs_f64(),
            End::Count(_) => profile.due_between(0.0, seen.seconds) / seen.seconds.max(1e-9),
        };
        // Poisson arrivals come short by chance: three standard deviations of their number are none.
        let chance = 3.0 * (asked * seen.seconds).max(1.0).sqrt() / seen.seconds.max(1e-9);
        if seen.rate < asked * RATE_MIN - chance {
            reasons.push(format!("the rate was not reached: {:.0} a second of {asked:.0} asked for", seen.rate));
        }
        if let Some((first, last)) = lag_growth(&seen.lag_by_time) {
            reasons.push(format!(
                "the send lag grew: requests left {:.1} ms late at the beginning and {:.1} ms at the end; the server is \
                 too slow for the rate with these connections, or the client is",
                first / 1e3,
                last / 1e3
            ));
        }
    }
    if seen.rows_lost > 0 {
        reasons.push(format!("{} rows were lost: the writer of --csv did not keep up", seen.rows_lost));
    }
    if seen.stolen > STOLEN_MAX {
        let (stolen, most) = (seen.stolen * 100.0, STOLEN_MAX * 100.0);
        reasons.push(format!("{stolen:.1}% of the machine's time was stolen by others (at most {most:.0}%)"));
    }
    Verdict { reasons }
}

/// The medians of the first and the last quarter, if the lag grew between them.
fn lag_growth(lags: &[f64]) -> Option<(f64, f64)> {
    let quarter = lags.len() / 4;
    if quarter == 0 {
        return None;
    }
    let median = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let (first, last) = (median(&lags[..quarter]), median(&lags[lags.len() - quarter..]));
    (last > 2.0 * first && last - first > LAG_GROWTH_MAX_US).then_some((first, last))
}

#[cfg(test)]
#[path = "tests/verdict.rs"]
mod tests;
