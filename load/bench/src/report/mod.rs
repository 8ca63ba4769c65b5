//! Output of runs: figures, charts and files.

pub(crate) mod charts;
pub(crate) mod csv;
pub(crate) mod figures;
pub mod html;
pub mod json;
pub mod origin;
pub mod page;
pub mod pending;
pub mod plot;
pub(crate) mod summary;
pub mod table;
pub mod units;

/// Measurements for tests, ordinary and extreme.
#[cfg(test)]
pub(crate) mod fixtures {
    use crate::measurement::{FORMAT, Finish, Interval, Load, Machine, Report, Run, ServerSide, Verdict};

    /// A report of these runs.
    pub(crate) fn report(runs: Vec<Run>) -> Report {
        let load = Load {
            protocol: "grpc".to_owned(),
            target: "127.0.0.1:10086".to_owned(),
            what: "bookstore.BookStore/Buy".to_owned(),
            pace: "closed".to_owned(),
            connections: 2,
            in_flight: 1,
            workers: 1,
            settings: [("warm-up".to_owned(), "1s".to_owned())].into(),
            ..Load::default()
        };
        let machine = Machine { cpu: "Example 9000".to_owned(), cores: 2, system: "Linux 6.1".to_owned() };
        Report { format: FORMAT.to_owned(), tool: "quire-bench 0.1.0".to_owned(), machine, load, runs }
    }

    /// A run in which nothing ended.
    pub(crate) fn empty() -> Run {
        Run { seconds: 1.0, series: vec![Interval { seconds: 1.0, ..Interval::default() }], ..Run::default() }
    }

    /// A single request.
    pub(crate) fn one() -> Run {
        let mut run = of_times(&[250_000], 1.0);
        run.errors = 0;
        run
    }

    /// Two seconds of a thousand requests, from 100 µs to 100 ms, with every optional part.
    pub(crate) fn busy() -> Run {
        let times: Vec<u64> = (1..=1000).map(|number| 100_000 * number).collect();
        let server = ServerSide {
            seconds: 2.0,
            cpu_seconds: 0.01,
            calls: 1000,
            latency: vec![(0.001, 10), (0.1, 980), (f64::INFINITY, 10)],
        };
        Run { server: Some(server), ..of_times(&times, 2.0) }
    }

    /// Every request failed.
    pub(crate) fn all_errors() -> Run {
        let mut run = of_times(&[90_000, 110_000], 1.0);
        run.errors = 2;
        run.endings = [("UNAVAILABLE".to_owned(), 2)].into();
        run.verdict = Verdict::invalid("every request failed");
        for part in &mut run.series {
            part.errors = part.requests;
        }
        run
    }

    fn of_times(times_ns: &[u64], seconds: f64) -> Run {
        let mut run =
            Run { seconds, requests: times_ns.len() as u64, began_unix_ms: 1_770_000_000_000, ..Run::default() };
        for (turn, &time) in (0..).zip(times_ns) {
            for distribution in [&mut run.response, &mut run.service, &mut run.first_byte] {
                distribution.histogram.record(time).expect("in range");
            }
            let at_seconds = super::units::float(turn) * seconds / super::units::float(run.requests);
            let response_us = super::units::float(time) / 1e3;
            run.finishes.push(Finish {
                client: u32::try_from(turn % 2).expect("0 or 1"),
                turn: turn / 2,
                at_seconds,
                response_us,
            });
        }
        let part = Interval {
            seconds,
            requests: run.requests,
            p50_us: run.response.quantile_us(0.5),
            p99_us: run.response.quantile_us(0.99),
            max_us: run.response.max_us(),
            ..Interval::default()
        };
        run.series = vec![part];
        run.rate = super::units::float(run.requests) / seconds;
        run.endings = [("OK".to_owned(), run.requests)].into();
        (run.sent, run.completed) = (run.requests, run.requests);
        run
    }
}
