//! Validity of a run's figures: those of a client that was too slow do not describe the server.
//!
//! A reason makes a run INVALID. A doubt leaves it valid: the figures are right, but a reader may take them for the
//! server's when they are the client's or the machine's.

use crate::measurement::{Run, ServerSide, Verdict};
use crate::plan::{End, Pace, Plan};
use crate::report::units;
use crate::stats::curve::is_reached;

/// Maximum share of the time that a worker may be running: above it, the client was the bottleneck, or may have been.
const BUSY_MAX: f64 = 0.95;

/// Maximum share of the machine's time that other virtual machines may take.
const STOLEN_MAX: f64 = 0.02;

/// Maximum share of the time of the client's cores that other processes may take.
const OTHERS_MAX: f64 = 0.10;

/// Maximum share of the time that a worker may wait for a core: below it, other processes do not disturb it.
const WAITING_MAX: f64 = 0.02;

/// Growth of the send lag, from the first quarter of a run to the last, that chance does not explain: a queue grew.
const LAG_GROWTH_MAX_US: f64 = 1_000.0;

/// Maximum ratio of response to service time, unless they are less than [`APART_MIN_US`] apart.
const RESPONSE_MAX: f64 = 2.0;

/// Maximum ratio of service time to the server's own time, unless they are less than [`APART_MIN_US`] apart. It is
/// wide, because the server's buckets are coarse and its clock starts late.
const SERVICE_MAX: f64 = 10.0;

/// Smaller differences are not worth a doubt.
const APART_MIN_US: f64 = 1_000.0;

#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) plan: &'a Plan,
    /// Its figures, without a verdict.
    pub(crate) run: &'a Run,
    pub(crate) stolen: f64,
    /// Share of the time of the client's cores that other processes took.
    pub(crate) others: f64,
    pub(crate) lag_by_time: Vec<f64>,
    /// Rows of requests that the writer rejected.
    pub(crate) rows_lost: u64,
}

pub(crate) fn judge(seen: &Seen<'_>) -> Verdict {
    let run = seen.run;
    let mut reasons = Vec::new();
    if run.requests == 0 {
        reasons.push("no request was measured".to_owned());
    } else if run.errors == run.requests {
        reasons.push("every request failed".to_owned());
    }
    if run.client_busy_max > BUSY_MAX {
        reasons.push(format!(
            "the client was the bottleneck: a worker was busy for {:.0}% of the time (at most {:.0}%); use more workers \
             or a lower rate",
            run.client_busy_max * 100.0,
            BUSY_MAX * 100.0
        ));
    }
    if let Pace::Open { profile, .. } = &seen.plan.pace {
        let seconds = match seen.plan.end {
            End::After(duration) => duration.as_secs_f64(),
            End::Count(_) => run.seconds.max(1e-9),
        };
        reasons.extend(rate_missed(run, profile.mean_rate(seconds)));
        reasons.extend(never_sent(run));
        reasons.extend(lag_grew(&seen.lag_by_time));
    }
    if seen.rows_lost > 0 {
        reasons.push(format!("{} rows were lost: the writer of --csv did not keep up", seen.rows_lost));
    }
    if seen.stolen > STOLEN_MAX {
        let (stolen, most) = (seen.stolen * 100.0, STOLEN_MAX * 100.0);
        reasons.push(format!("{stolen:.1}% of the machine's time went to other virtual machines (at most {most:.0}%)"));
    }
    let doubts = [waited_in_the_client(run), shared_cores(run.client_waiting_max, seen.others)];
    Verdict { reasons, doubts: doubts.into_iter().flatten().collect() }
}

/// True if a run with this many answers in its time is INVALID for its rate, whatever comes later.
pub(crate) fn is_rate_missed(plan: &Plan, completed: u64) -> bool {
    let (Pace::Open { profile, .. }, End::After(duration)) = (&plan.pace, plan.end) else { return false };
    let seconds = duration.as_secs_f64();
    !is_reached(units::float(completed) / seconds, profile.mean_rate(seconds), seconds)
}

fn rate_missed(run: &Run, asked: f64) -> Option<String> {
    (!is_reached(run.rate, asked, run.seconds))
        .then(|| format!("the rate was not reached: {:.0} a second of {asked:.0} asked for", run.rate))
}

fn never_sent(run: &Run) -> Option<String> {
    let count = run.requests - run.sent.min(run.requests);
    (count > 0).then(|| {
        format!(
            "requests were due and never sent: {} of {}, because no place on a connection was free within the timeout; \
             use more connections (-c), more requests on each (-m), or a lower rate",
            units::count(count),
            units::count(run.requests)
        )
    })
}

fn lag_grew(lags: &[f64]) -> Option<String> {
    let (first, last) = lag_growth(lags)?;
    Some(format!(
        "the send lag grew: requests were sent {:.1} ms late at the beginning and {:.1} ms late at the end; the server is too slow \
         for the rate with these connections, or the client is",
        first / 1e3,
        last / 1e3
    ))
}

/// Doubt: response times are the client's queue rather than the server's work.
fn waited_in_the_client(run: &Run) -> Option<String> {
    if run.lag.count() == 0 || run.service.count() == 0 {
        return None;
    }
    let apart = |(name, share): (&str, f64)| {
        let [response, service] = [&run.response, &run.service].map(|times| times.quantile_us(share));
        let is_apart = response > RESPONSE_MAX * service && response - service > APART_MIN_US;
        is_apart.then(|| {
            format!(
                "requests waited in the client: {name} is {} from when they were due and {} from when they were sent; \
                 use more connections (-c), more requests on each (-m), or a lower rate",
                units::micros(response),
                units::micros(service)
            )
        })
    };
    [("p50", 0.5), ("p99", 0.99)].into_iter().find_map(apart)
}

fn shared_cores(waiting: f64, others: f64) -> Option<String> {
    (others > OTHERS_MAX && waiting > WAITING_MAX).then(|| {
        format!(
            "other processes were on the client's cores: they had {:.0}% of the time (at most {:.0}%), and a worker \
             waited for a core for {:.0}%; give the client cores of its own (--cores, and taskset for the server)",
            others * 100.0,
            OTHERS_MAX * 100.0,
            waiting * 100.0
        )
    })
}

/// Doubt: the client saw times that the server did not, spent in a network, in a queue before the server's clock, or in
/// the client.
pub(crate) fn compare_with_server(run: &Run, server: &ServerSide) -> Option<String> {
    let seen = server_median_us(server)?;
    let service = run.service.quantile_us(0.5);
    (run.service.count() > 0 && service > SERVICE_MAX * seen && service - seen > APART_MIN_US).then(|| {
        format!(
            "the server's own times are far below: its median is at most {}, the client's is {} from when requests were \
             sent; the difference passed in the network, in a queue before the server's clock, or in the client",
            units::micros(seen),
            units::micros(service)
        )
    })
}

/// Upper bound of the bucket with the server's median; `None` if it is infinite or nothing was counted.
fn server_median_us(server: &ServerSide) -> Option<f64> {
    let half = server.latency.iter().map(|(_, calls)| calls).sum::<u64>().div_ceil(2);
    let mut below = 0;
    let bucket = server.latency.iter().find(|(_, calls)| {
        below += calls;
        half > 0 && below >= half
    })?;
    bucket.0.is_finite().then_some(bucket.0 * 1e6)
}

/// Medians of the first and the last quarter, if the lag grew between them.
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
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::schedule::Arrivals;

    fn plan(rate: Option<&str>) -> Plan {
        let pace = match rate {
            None => Pace::Closed,
            Some(rate) => Pace::Open { arrivals: Arrivals::Constant, profile: rate.parse().expect("a rate") },
        };
        Plan {
            pace,
            end: End::After(Duration::from_secs(10)),
            warm_up: Duration::ZERO,
            connections: 1,
            in_flight: 1,
            workers: 1,
            cores: None,
            timeout: Duration::from_secs(1),
            seed: 1,
        }
    }

    /// Ten seconds of 1,000 requests a second, answered in 2 ms.
    fn quiet() -> Run {
        let mut run = Run {
            rate: 1000.0,
            seconds: 10.0,
            requests: 10_000,
            sent: 10_000,
            completed: 10_000,
            client_busy_max: 0.5,
            ..Run::default()
        };
        run.response.histogram.record_n(2_000_000, 10_000).expect("in range");
        run.service.histogram.record_n(1_990_000, 10_000).expect("in range");
        run.lag.histogram.record_n(10_000, 10_000).expect("in range");
        run
    }

    fn judged(plan: &Plan, change: impl FnOnce(&mut Run, &mut Seen<'_>)) -> Verdict {
        let mut run = quiet();
        let run_before = Run::default();
        let mut seen =
            Seen { plan, run: &run_before, stolen: 0.0, others: 0.0, lag_by_time: vec![20.0; 40], rows_lost: 0 };
        change(&mut run, &mut seen);
        judge(&Seen { run: &run, ..seen })
    }

    fn expect(said: &[String], expected: &[&str]) {
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for (said, expected) in said.iter().zip(expected) {
            assert!(said.contains(expected), "{said}");
        }
    }

    fn check(plan: &Plan, change: impl FnOnce(&mut Run, &mut Seen<'_>), expected: &[&str]) {
        expect(&judged(plan, change).reasons, expected);
    }

    #[test]
    fn a_quiet_run_is_believed() {
        for plan in [plan(None), plan(Some("1000"))] {
            assert_eq!(judged(&plan, |_, _| {}), Verdict::default());
        }
    }

    #[test]
    fn a_busy_client_is_not() {
        check(&plan(None), |run, _| run.client_busy_max = 0.97, &["the client was the bottleneck"]);
    }

    #[test]
    fn a_rate_that_was_not_reached_is_not() {
        check(&plan(Some("1000")), |run, _| run.rate = 950.0, &["the rate was not reached: 950 a second of 1000"]);
        check(&plan(None), |run, _| run.rate = 1.0, &[]);
    }

    #[test]
    fn a_lag_that_grew_is_not_and_one_that_came_and_went_is() {
        let growing =
            |_: &mut Run, seen: &mut Seen<'_>| seen.lag_by_time = (0..40).map(|step| f64::from(step) * 500.0).collect();
        check(&plan(Some("1000")), growing, &["the send lag grew"]);
        let passing = |_: &mut Run, seen: &mut Seen<'_>| seen.lag_by_time[20] = 1e6;
        check(&plan(Some("1000")), passing, &[]);
    }

    #[test]
    fn stolen_time_and_failure_are_told() {
        check(
            &plan(None),
            |_, seen| seen.stolen = 0.05,
            &["5.0% of the machine's time went to other virtual machines"],
        );
        check(&plan(None), |_, seen| seen.rows_lost = 7, &["7 rows were lost"]);
        check(&plan(None), |run, _| run.errors = 10_000, &["every request failed"]);
        check(&plan(None), |run, _| run.requests = 0, &["no request was measured"]);
    }

    #[test]
    fn requests_that_were_never_sent_are_told() {
        let unsent = |run: &mut Run, _: &mut Seen<'_>| run.sent = 1_000;
        check(&plan(Some("1000")), unsent, &["requests were due and never sent: 9,000 of 10,000"]);
    }

    #[test]
    fn response_times_far_above_service_times_are_doubted_with_the_percentile_where_they_are() {
        let doubts = |late: u64| {
            let change = |run: &mut Run, _: &mut Seen<'_>| {
                run.response.histogram.record_n(50_000_000, late).expect("in range");
            };
            judged(&plan(Some("1000")), change).doubts
        };
        expect(&doubts(20), &[]);
        expect(&doubts(500), &["p99 is 50.0 ms from when they were due and 1.99 ms from when they were sent"]);
        expect(&doubts(20_000), &["p50 is 50.0 ms from when they were due"]);
    }

    #[test]
    fn other_processes_are_doubted_if_a_worker_waited_for_them() {
        let doubts = |others: f64, waiting: f64| {
            let change = |run: &mut Run, seen: &mut Seen<'_>| {
                run.client_waiting_max = waiting;
                seen.others = others;
            };
            judged(&plan(None), change).doubts
        };
        expect(&doubts(0.5, 0.0), &[]);
        expect(&doubts(0.05, 0.5), &[]);
        expect(&doubts(0.5, 0.1), &["they had 50% of the time (at most 10%), and a worker waited for a core for 10%"]);
    }

    #[test]
    fn a_server_that_counted_far_less_than_the_client_saw_is_told() {
        let server = |latency: &[(f64, u64)]| ServerSide { latency: latency.to_vec(), ..ServerSide::default() };
        let said = |latency: &[(f64, u64)]| compare_with_server(&quiet(), &server(latency));
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[(0.001, 60), (0.002, 40)]), None, "twice is no wonder");
        assert_eq!(said(&[(0.0001, 10), (f64::INFINITY, 90)]), None, "the median has no upper end");
        let far = said(&[(0.0001, 60), (0.002, 40)]).expect("twenty times");
        assert!(far.contains("its median is at most 100 µs, the client's is 1.99 ms"), "{far}");
    }
}
