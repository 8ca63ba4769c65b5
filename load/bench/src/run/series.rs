//! The run over time: a bounded number of intervals, each combined from all workers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::measurement::Interval;
use crate::recorder::Part;

/// Maximum intervals: an hour of seconds. Beyond, neighbours are merged, with the worse percentiles of the two.
const INTERVALS_MAX: usize = 3_600;

/// A last interval up to this length is merged into the one before.
const SLIVER_SECONDS: f64 = 0.005;

pub(super) struct Series {
    workers: usize,
    /// Intervals that not all workers have handed over.
    open: BTreeMap<usize, (usize, Duration, Box<Part>)>,
    closed: Vec<(Interval, f64)>,
}

impl Series {
    pub(super) fn new(workers: usize) -> Self {
        Self { workers, open: BTreeMap::new(), closed: Vec::new() }
    }

    /// Adds a worker's part; returns the interval once it is complete.
    pub(super) fn add(&mut self, interval: usize, span: Duration, part: Box<Part>) -> Option<Interval> {
        let is_whole = match self.open.get_mut(&interval) {
            None => {
                self.open.insert(interval, (1, span, part));
                self.workers == 1
            }
            Some((workers, longest, sum)) => {
                sum.add(&part);
                *workers += 1;
                *longest = span.max(*longest);
                *workers == self.workers
            }
        };
        if is_whole { self.close(interval) } else { None }
    }

    fn close(&mut self, interval: usize) -> Option<Interval> {
        let (_, span, part) = self.open.remove(&interval)?;
        let at_seconds = self.closed.last().map_or(0.0, |(last, _)| last.at_seconds + last.seconds);
        let mut response = part.response;
        if let Some(early) = &part.early {
            response.add(early);
        }
        let closed = Interval {
            at_seconds,
            seconds: span.as_secs_f64(),
            requests: part.answered,
            due: 0.0,
            errors: part.errors,
            p50_us: response.quantile_us(0.5),
            p90_us: response.quantile_us(0.9),
            p99_us: response.quantile_us(0.99),
            p999_us: response.quantile_us(0.999),
            max_us: response.max_us(),
        };
        self.closed.push((closed.clone(), part.lag.quantile_us(0.5)));
        if self.closed.len() > INTERVALS_MAX {
            self.closed = self.closed.chunks(2).map(merge).collect();
        }
        Some(closed)
    }

    /// Median send lags over time, in microseconds.
    pub(super) fn lags(&self) -> Vec<f64> {
        self.closed.iter().map(|(_, lag)| *lag).collect()
    }

    /// All intervals; `due` returns the number of requests due between two times in seconds.
    pub(super) fn finish(mut self, due: impl Fn(f64, f64) -> f64) -> Vec<Interval> {
        // Intervals that a failed worker never handed over.
        let open: Vec<usize> = self.open.keys().copied().collect();
        for interval in open {
            self.close(interval);
        }
        // A very short last interval, whose own rate would mean nothing, belongs to the one before.
        if let [.., _, (last, _)] = &self.closed[..]
            && last.seconds <= SLIVER_SECONDS
        {
            let pair = self.closed.split_off(self.closed.len() - 2);
            self.closed.push(merge(&pair));
        }
        let intervals = self.closed.into_iter().map(|(interval, _)| interval);
        let with_due = |interval: Interval| {
            let due = due(interval.at_seconds, interval.at_seconds + interval.seconds);
            Interval { due, ..interval }
        };
        intervals.map(with_due).collect()
    }
}

fn merge(pair: &[(Interval, f64)]) -> (Interval, f64) {
    let (first, first_lag) = &pair[0];
    let (second, second_lag) = pair.get(1).unwrap_or(&pair[0]);
    if pair.len() == 1 {
        return pair[0].clone();
    }
    let merged = Interval {
        at_seconds: first.at_seconds,
        seconds: first.seconds + second.seconds,
        requests: first.requests + second.requests,
        due: first.due + second.due,
        errors: first.errors + second.errors,
        p50_us: first.p50_us.max(second.p50_us),
        p90_us: first.p90_us.max(second.p90_us),
        p99_us: first.p99_us.max(second.p99_us),
        p999_us: first.p999_us.max(second.p999_us),
        max_us: first.max_us.max(second.max_us),
    };
    (merged, first_lag.max(*second_lag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_in_a_sliver_at_the_end_is_counted() {
        let mut series = Series::new(1);
        for (number, ms) in [(0, 500), (1, 496), (2, 4)] {
            series.add(number, Duration::from_millis(ms), Box::default());
        }
        let intervals = series.finish(|from, to| 2000.0 * (to - from));
        let due: f64 = intervals.iter().map(|interval| interval.due).sum();
        assert!((due - 2000.0).abs() < 1e-6, "{due}");
        assert_eq!(intervals.len(), 2);
    }
}
