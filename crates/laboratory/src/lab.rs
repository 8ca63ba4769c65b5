//! Measures several subjects under several loads, in turns, and keeps every run.
//!
//! In each round every load is put to every subject, the subjects in an order drawn anew: what the machine does
//! meanwhile then falls on all of them alike, and a round is a pair for the statistics.
//!
//! Must not know what the subjects are.

use std::time::Duration;

use crate::progress::Progress;
use bench::measurement::Run;
use bench::stats::interval::{self, Interval};
use bench::stats::order::Orders;

/// Confidence of every interval that an experiment states.
pub const CONFIDENCE: f64 = 0.95;

/// Doubtful runs that the page names for each reason; the file of runs has all of them.
const DOUBTS_NAMED: usize = 8;

/// A run of one load on one subject.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Of the subject.
    pub subject: &'static str,
    /// Of the load.
    pub load: String,
    /// From 0.
    pub round: usize,
    /// What was seen.
    pub run: Run,
    /// CPU time that the subject's process spent meanwhile.
    pub server_cpu: Duration,
}

impl Measured {
    /// CPU time of the server a request, in microseconds.
    pub fn server_cpu_us(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / real(self.run.completed.max(1))
    }

    /// Bytes of answers a second, as the sockets carried them.
    pub fn bytes_per_second(&self) -> f64 {
        self.run.rate * self.bytes_a_request()
    }

    /// Bytes of an answer, as the sockets carried it.
    pub fn bytes_a_request(&self) -> f64 {
        real(self.run.received_bytes) / real(self.run.completed.max(1))
    }

    /// CPU time of the client a request, in microseconds.
    pub fn client_cpu_us(&self) -> f64 {
        self.run.client_cpu_seconds * 1e6 / real(self.run.completed.max(1))
    }

    /// The share of the time in which the server's process was on a core; of one held to one core, of that core.
    pub fn server_busy(&self) -> f64 {
        self.server_cpu.as_secs_f64() / self.run.seconds.max(1e-9)
    }

    /// The run's time shared out over its requests, in milliseconds: what the published figures state.
    pub fn ms_a_request(&self) -> f64 {
        1e3 / self.run.rate
    }
}

/// All runs of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Results {
    measured: Vec<Measured>,
}

/// Makes one run of a load on the subject of this number, and says what CPU time its process spent.
pub type Measure<'a, L> = dyn FnMut(usize, &L) -> anyhow::Result<(Run, Duration)> + 'a;

/// Puts `loads` to `subjects` for so many rounds. The caller has announced as many steps as it makes runs.
pub fn in_turns<L>(
    progress: &Progress,
    rounds: usize,
    seed: u64,
    subjects: &[&'static str],
    loads: &[(String, L)],
    measure: &mut Measure<'_, L>,
) -> anyhow::Result<Results> {
    let mut orders = Orders::new(seed);
    let mut results = Results::default();
    for round in 0..rounds {
        for (load, what) in loads {
            for subject in orders.order(subjects.len()) {
                progress.begin(format!("round {} of {rounds}, {load}, {}", round + 1, subjects[subject]), None);
                let (run, server_cpu) = measure(subject, what)?;
                let measured = Measured { subject: subjects[subject], load: load.clone(), round, run, server_cpu };
                let rate = format!("{:.0} requests/s", measured.run.rate);
                // Others' load generators may keep their times to themselves.
                match measured.run.response.count() {
                    0 => progress.end(&rate),
                    _ => progress.end(&format!("{rate}, p50 {:.0} µs", measured.run.response.quantile_us(0.5))),
                }
                results.measured.push(measured);
            }
        }
    }
    Ok(results)
}

impl Results {
    /// Every run, in the order in which they were made.
    pub fn all(&self) -> &[Measured] {
        &self.measured
    }

    /// Takes in a run.
    #[cfg(test)]
    pub(super) fn push(&mut self, measured: Measured) {
        self.measured.push(measured);
    }

    /// Takes in the runs of another series.
    pub fn extend(&mut self, other: Self) {
        self.measured.extend(other.measured);
    }

    /// The same as the runs of one round, for a series that is measured a round at a time.
    #[must_use]
    pub fn in_round(mut self, round: usize) -> Self {
        self.measured.iter_mut().for_each(|one| one.round = round);
        self
    }

    /// The runs of a load on a subject, by round.
    pub fn of<'a>(&'a self, subject: &'a str, load: &'a str) -> impl Iterator<Item = &'a Measured> {
        self.measured.iter().filter(move |one| one.subject == subject && one.load == load)
    }

    /// The median over the rounds of a figure; NaN if the load was not put to the subject.
    pub fn median(&self, subject: &str, load: &str, figure: impl Fn(&Measured) -> f64) -> f64 {
        interval::median(&self.of(subject, load).map(figure).collect::<Vec<_>>())
    }

    /// How many times the figure of `other` the figure of `subject` is, paired by round; none with fewer than two.
    pub fn ratio(
        &self,
        subject: &str,
        other: &str,
        load: &str,
        figure: impl Fn(&Measured) -> f64 + Copy,
    ) -> Option<Interval> {
        let values = |subject| self.of(subject, load).map(figure).collect::<Vec<_>>();
        interval::paired_ratio(&values(other), &values(subject), CONFIDENCE)
    }

    /// Why runs are not to be believed, each reason once, with how many runs it befell.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = std::collections::BTreeMap::<&str, Vec<String>>::new();
        for one in &self.measured {
            for reason in &one.run.verdict.reasons {
                // The figures differ from run to run; what befell them does not.
                let kind = reason.split(':').next().unwrap_or(reason);
                let kind = kind.trim_start_matches(|letter: char| !letter.is_alphabetic()).trim_start_matches("of ");
                doubts.entry(kind).or_default().push(format!("{} of {}", one.load, one.subject));
            }
        }
        let told = |(kind, runs): (&str, Vec<String>)| {
            let named = runs[..runs.len().min(DOUBTS_NAMED)].join(", ");
            let more = runs.len().saturating_sub(DOUBTS_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{kind}, in {} of {} runs: {named}{more}", runs.len(), self.measured.len())
        };
        doubts.into_iter().map(told).collect()
    }
}

/// A row a request, of the runs that kept every finish; of longer ones they are a sample, which no row a request is.
pub fn requests_csv<'a>(runs: impl Iterator<Item = &'a Measured>) -> anyhow::Result<String> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record(["load", "server", "round", "client", "turn", "finished_seconds", "response_us"])?;
    for one in runs {
        if one.run.requests != u64::try_from(one.run.finishes.len())? {
            continue;
        }
        for finish in &one.run.finishes {
            rows.write_record([
                one.load.clone(),
                one.subject.to_owned(),
                one.round.to_string(),
                finish.client.to_string(),
                finish.turn.to_string(),
                finish.at_seconds.to_string(),
                finish.response_us.to_string(),
            ])?;
        }
    }
    Ok(String::from_utf8(rows.into_inner()?)?)
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^53")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use bench::measurement::Verdict;

    fn measured(round: usize, run: Run) -> Measured {
        Measured { subject: "quire", load: "buy".to_owned(), round, run, server_cpu: Duration::ZERO }
    }

    #[test]
    fn a_sample_of_the_finishes_is_not_passed_off_as_a_row_a_request() {
        let whole = fixtures::busy();
        let mut sample = fixtures::busy();
        sample.finishes.pop();
        let requests = usize::try_from(whole.requests).expect("a number");
        let rows = requests_csv([measured(0, whole), measured(1, sample)].iter()).expect("rows");
        assert_eq!(rows.lines().count(), 1 + requests);
        assert!(rows.lines().skip(1).all(|row| row.starts_with("buy,quire,0,")));
    }

    #[test]
    fn doubts_are_told_by_reason_with_the_first_runs_and_how_many_more() {
        let mut results = Results::default();
        for round in 0..20 {
            let mut run = fixtures::busy();
            if round > 0 {
                run.verdict = Verdict::invalid(format!("{round}.5% of the time was stolen"));
            }
            results.push(measured(round, run));
        }
        let doubts = results.doubts();
        let named = ["buy of quire"; DOUBTS_NAMED].join(", ");
        assert_eq!(doubts, [format!("the time was stolen, in 19 of 20 runs: {named} and 11 more")]);
    }
}
