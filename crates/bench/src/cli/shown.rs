//! Compared figures and judged objectives in words.

use crate::report::{figures, units};
use crate::stats::metric::Metric;
use crate::stats::slo::{Judged, Measure, Outcome};

pub(crate) fn value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Rate => figures::rate(value),
        Metric::Errors => units::percent(value),
        Metric::Wall | Metric::Cpu => time(value * 1e6),
        Metric::P50
        | Metric::P90
        | Metric::P99
        | Metric::P999
        | Metric::Mean
        | Metric::ClientCpu
        | Metric::ServerCpu => time(value),
    }
}

/// An objective, what was seen with its interval, and what became of it, as a line.
pub(crate) fn judged(judged: &Judged) -> String {
    let show = |value: f64| match judged.objective.measure {
        Measure::Errors => units::percent(value),
        Measure::Rate => figures::rate(value),
        Measure::Quantile(_) | Measure::Mean | Measure::Max => time(value),
    };
    let outcome = match judged.outcome {
        Outcome::Pass => "pass",
        Outcome::Fail => "FAIL",
        Outcome::Inconclusive => "inconclusive",
    };
    let seen = judged.seen.map_or_else(|| "nothing seen".to_owned(), |seen| format!("{} seen", show(seen)));
    let interval = judged
        .interval
        .map(|interval| format!(" ({} to {})", show(interval.low), show(interval.high)))
        .unwrap_or_default();
    let reason = judged.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{}: {seen}{interval}: {outcome}{reason}", judged.objective)
}

fn time(micros: f64) -> String {
    if micros.is_infinite() { "no upper limit".to_owned() } else { units::micros(micros) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Distribution;
    use crate::measurement::Run;
    use crate::stats::slo::{judge, parse};

    #[test]
    fn values_are_shown_in_the_unit_that_suits_them() {
        assert_eq!(value(Metric::P99, 12.5), "12.5 µs");
        assert_eq!(value(Metric::P99, 1_234.5), "1.23 ms");
        assert_eq!(value(Metric::Rate, 123_456.7), "123,457 /s");
        assert_eq!(value(Metric::Errors, 0.001), "0.100%");
        assert_eq!(value(Metric::Wall, 2.0), "2.00 s");
    }

    #[test]
    fn an_objective_is_a_line_with_what_was_seen_and_why_it_is_open() {
        let mut response = Distribution::default();
        response.histogram.record_n(1_000_000, 100).expect("within bounds");
        let run = Run { requests: 100, response, ..Run::default() };
        let lines = |list: &str| {
            judge(&parse(list).expect(list), std::slice::from_ref(&run)).iter().map(judged).collect::<Vec<_>>()
        };
        assert_eq!(
            lines("p99<5ms,max<=2ms,errors<=0"),
            [
                "p99<5ms: 1.00 ms seen (1.00 ms to no upper limit): inconclusive: too few requests to tell",
                "max<=2ms: 1.00 ms seen: pass",
                "errors<=0: 0% seen: pass",
            ]
        );
        assert_eq!(
            judge(&parse("rate>1").expect("an objective"), &[]).iter().map(judged).collect::<Vec<_>>(),
            ["rate>1: nothing seen: inconclusive: no request was measured"]
        );
    }
}
