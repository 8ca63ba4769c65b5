//! Judged objectives as text.

use crate::report::units;
use crate::stats::slo::{Judged, Measure, Outcome};

/// An objective with the value seen, its interval and its outcome, as a line.
pub(crate) fn judged(judged: &Judged) -> String {
    let show = |value: f64| match judged.objective.measure {
        Measure::Errors => units::percent(value),
        Measure::Rate => units::rate(value),
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
