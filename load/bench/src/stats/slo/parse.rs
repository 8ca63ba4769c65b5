//! Parses objectives. An error names the wrong part and a right form.

use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};

use super::objective::{Measure, Objective, Relation};

/// Maximum objectives in a list.
const OBJECTIVES_MAX: usize = 32;

const A_TIME: &str = "a time, as in 500us, 5ms or 1.5s";
const A_SHARE: &str = "a share from 0% to 100%, as in 0.1%";
const A_RATE: &str = "a number of requests a second, as in 1000";

/// The objectives of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Objectives(pub Vec<Objective>);

impl FromStr for Objectives {
    type Err = anyhow::Error;

    fn from_str(list: &str) -> anyhow::Result<Self> {
        parse(list).map(Self)
    }
}

/// Parses a comma-separated list of objectives.
pub(crate) fn parse(list: &str) -> anyhow::Result<Vec<Objective>> {
    ensure!(
        list.split(',').nth(OBJECTIVES_MAX).is_none(),
        "there are more than {OBJECTIVES_MAX} objectives: leave some out"
    );
    list.split(',').map(|part| objective(part.trim())).collect()
}

fn objective(part: &str) -> anyhow::Result<Objective> {
    ensure!(!part.is_empty(), "an objective is empty: write a list, as p99<5ms,errors<0.1%,rate>1000");
    let no_relation =
        || format!("{part:?} compares nothing: write one of < <= > >= between a measure and a bound, as in `p99<5ms`");
    let at = part.find(['<', '>']).with_context(no_relation)?;
    let (name, rest) = (part[..at].trim(), &part[at..]);
    let (relation, bound) =
        [("<=", Relation::AtMost), (">=", Relation::AtLeast), ("<", Relation::Below), (">", Relation::Above)]
            .into_iter()
            .find_map(|(sign, relation)| Some((relation, rest.strip_prefix(sign)?.trim())))
            .filter(|(_, bound)| !bound.contains(['<', '>', '=']))
            .with_context(no_relation)?;
    let measure = measure(part, name)?;
    let (value, want) = match measure {
        Measure::Quantile(_) | Measure::Mean | Measure::Max => (time_us(bound), A_TIME),
        Measure::Errors => (share(bound), A_SHARE),
        Measure::Rate => (positive(bound.strip_suffix("/s").unwrap_or(bound)), A_RATE),
    };
    let Some(value) = value else {
        if want == A_TIME && positive(bound).is_some() {
            bail!("{name} needs a unit: write `{part}ms` or another of ns, us, ms and s");
        }
        bail!("{name} cannot be compared with {bound:?}: it is {want}");
    };
    ensure!(
        relation != Relation::Below || value > 0.0,
        "{part:?} can never hold, because nothing is below 0: write `{name}<=0` to allow none"
    );
    Ok(Objective { text: part.to_owned(), measure, relation, bound: value })
}

fn measure(part: &str, name: &str) -> anyhow::Result<Measure> {
    match name {
        "mean" => Ok(Measure::Mean),
        "max" => Ok(Measure::Max),
        "errors" => Ok(Measure::Errors),
        "rate" => Ok(Measure::Rate),
        _ => {
            let unknown = || {
                format!(
                    "{part:?} measures something unknown, {name:?}: write p50, p99, p99.9 or another percentile, mean, \
                     max, errors or rate"
                )
            };
            let percent = name.strip_prefix('p').filter(|percent| positive(percent).is_some()).with_context(unknown)?;
            // Shifting the point in the text rounds once: 99.9 / 100 is not the number nearest to 0.999.
            let share: f64 = format!("{percent}e-2").parse().with_context(unknown)?;
            ensure!(
                share > 0.0 && share < 1.0,
                "{part:?} is not a percentile: it must be above 0 and below 100; for the longest time write `max`"
            );
            Ok(Measure::Quantile(share))
        }
    }
}

/// Parses a number of 0 or more in plain digits.
fn positive(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse().ok()).flatten().filter(|value: &f64| value.is_finite())
}

fn time_us(text: &str) -> Option<f64> {
    // Units that end in s come before s itself.
    [("ns", 1e-3), ("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)]
        .into_iter()
        .find_map(|(unit, micros)| Some((text.strip_suffix(unit)?, micros)))
        .and_then(|(value, micros)| Some(positive(value.trim_end())? * micros))
}

fn share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => positive(percent.trim_end())? / 100.0,
        None => positive(text)?,
    };
    (share <= 1.0).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &str, expected: &[(Measure, Relation, f64)]) {
        let objectives = parse(list).unwrap_or_else(|error| panic!("{list}: {error}"));
        assert_eq!(objectives.len(), expected.len(), "{list}");
        for (objective, (measure, relation, bound)) in objectives.iter().zip(expected) {
            assert_eq!((objective.measure, objective.relation), (*measure, *relation), "{list}");
            assert!((objective.bound - bound).abs() <= 1e-12 * bound, "{list}: {}", objective.bound);
        }
    }

    fn check_error(list: &str, expected: &str) {
        let error = parse(list).expect_err(list).to_string();
        assert!(error.contains(expected), "{list}: {error}");
    }

    #[test]
    fn every_measure_relation_and_unit_is_read() {
        use Measure::{Errors, Max, Mean, Quantile, Rate};
        use Relation::{Above, AtLeast, AtMost, Below};
        check(
            "p99<5ms,errors<0.1%,rate>1000",
            &[(Quantile(0.99), Below, 5_000.0), (Errors, Below, 0.001), (Rate, Above, 1_000.0)],
        );
        check("p99.9<=250us", &[(Quantile(0.999), AtMost, 250.0)]);
        check("p50 < 1.5 s , mean<=900ns", &[(Quantile(0.5), Below, 1.5e6), (Mean, AtMost, 0.9)]);
        check("max<1s,max<30µs", &[(Max, Below, 1e6), (Max, Below, 30.0)]);
        check("errors<=0,errors<0.05", &[(Errors, AtMost, 0.0), (Errors, Below, 0.05)]);
        check("rate>=2500.5/s,p10>1ns", &[(Rate, AtLeast, 2_500.5), (Quantile(0.1), Above, 0.001)]);
    }

    #[test]
    fn an_error_names_the_part_and_what_would_be_right() {
        check_error("", "write a list, as p99<5ms");
        check_error("p99<5ms,,rate>1", "write a list, as p99<5ms");
        check_error("p99", "\"p99\" compares nothing: write one of < <= > >=");
        check_error("p99=5ms", "\"p99=5ms\" compares nothing");
        check_error("p99<<5ms", "compares nothing");
        check_error("p99=<5ms", "unknown, \"p99=\"");
        check_error("<5ms", "unknown, \"\"");
        check_error("p99<5ms,latency<5ms", "\"latency<5ms\" measures something unknown, \"latency\": write p50");
        check_error("p<5ms", "unknown, \"p\"");
        check_error("p-1<5ms", "unknown, \"p-1\"");
        check_error("p100<5ms", "below 100; for the longest time write `max`");
        check_error("p0<5ms", "above 0");
        check_error("p99<5", "p99 needs a unit: write `p99<5ms` or another");
        check_error("max<=0.5", "max needs a unit: write `max<=0.5ms`");
        check_error("p99<5m", "p99 cannot be compared with \"5m\": it is a time, as in 500us, 5ms");
        check_error("mean<-5ms", "mean cannot be compared with \"-5ms\"");
        check_error("mean<ms", "mean cannot be compared with \"ms\"");
        check_error("mean<1e3ms", "cannot be compared");
        check_error("max<", "max cannot be compared with \"\"");
        check_error("errors<101%", "it is a share from 0% to 100%");
        check_error("errors<5", "it is a share from 0% to 100%");
        check_error("errors<5ms", "it is a share");
        check_error("errors<0%", "\"errors<0%\" can never hold, because nothing is below 0: write `errors<=0`");
        check_error("rate>5ms", "it is a number of requests a second");
        check_error("rate>inf", "it is a number of requests a second");
        check_error(&["max<1s"; OBJECTIVES_MAX + 1].join(","), "more than 32 objectives");
        assert_eq!(parse(&["max<1s"; OBJECTIVES_MAX].join(",")).expect("as many as may be").len(), OBJECTIVES_MAX);
    }

    mod any {
        use proptest::prelude::*;

        proptest! {
            #[test]
            fn text_never_panics(list in "[pmaxernot0-9.<>=%µus, -]{0,40}") {
                if let Ok(objectives) = super::parse(&list) {
                    prop_assert!(objectives.iter().all(|objective| objective.bound >= 0.0));
                }
            }
        }
    }
}
