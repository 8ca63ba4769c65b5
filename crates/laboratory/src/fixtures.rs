//! A run for tests.

use bench::measurement::Finish;
use bench::measurement::Run;
use bench::report::units;

/// Two seconds of a thousand requests, from 100 µs to 100 ms, and all their finishes.
pub(crate) fn busy() -> Run {
    let mut run = Run { seconds: 2.0, requests: 1000, completed: 1000, rate: 500.0, ..Run::default() };
    for turn in 0..1000 {
        let time_ns = 100_000 * (turn + 1);
        for distribution in [&mut run.response, &mut run.first_byte] {
            distribution.histogram.record(time_ns).expect("in range");
        }
        let response_us = units::float(time_ns) / 1e3;
        run.finishes.push(Finish { client: 0, turn, at_seconds: units::float(turn) / 500.0, response_us });
    }
    run
}
