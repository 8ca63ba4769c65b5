//! Measurements of an experiment, and its findings: each run as named figures, statistics over the runs of one load on one
//! subject, cells and cards of a page, CSV files.
//!
//! A figure's key joins its load, subject and name; page and summary use the same keys.

use std::collections::BTreeMap;
use std::time::Duration;

use bench::measurement::{Finish, Run};
use bench::report::origin;
use bench::report::page::{Banner, Card, Page, Tone, Value};
use bench::report::table::csv;
use bench::report::units::float;
use bench::stats::interval::{self, Interval};

/// Confidence of every interval that an experiment states.
const CONFIDENCE: f64 = 0.95;

/// Doubtful runs named for each reason; the CSV of runs has all of them.
const DOUBTS_NAMED: usize = 8;

/// Measurements of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    figures: BTreeMap<String, f64>,
    /// Completion of every request; empty if only a sample was kept.
    pub(crate) finishes: Vec<Finish>,
    /// Reasons to doubt the figures.
    pub(crate) doubts: Vec<String>,
}

impl Observed {
    /// Creates a run from figures by name; a name ends with its unit.
    pub(crate) fn new<'a>(figures: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let figures = figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
        Self { figures, ..Self::default() }
    }

    /// Figures of a load generator's run: its outcomes by label, and the CPU time of the server's process.
    pub(crate) fn of_run(run: &Run, server_cpu: Duration) -> Self {
        let completed = float(run.completed.max(1));
        let quantile = |share| run.response.quantile_us(share);
        let bytes = float(run.received_bytes) / completed;
        let mut observed = Self::new([
            ("requests", float(run.requests)),
            ("errors", float(run.errors)),
            ("failed", float(run.errors)),
            ("seconds", run.seconds),
            ("per_second", run.rate),
            // The run's time divided by its requests, as published figures state it.
            ("ms", 1e3 / run.rate),
            ("mean_us", run.response.mean_us()),
            ("p50_us", quantile(0.5)),
            ("p90_us", quantile(0.9)),
            ("p99_us", quantile(0.99)),
            ("p999_us", quantile(0.999)),
            ("first_byte_us", run.first_byte.quantile_us(0.5)),
            ("first_byte_p99_us", run.first_byte.quantile_us(0.99)),
            // As carried by the sockets.
            ("bytes_a_request", bytes),
            ("bytes_per_second", run.rate * bytes),
            ("megabytes", bytes / 1e6),
            ("cpu_us", server_cpu.as_secs_f64() * 1e6 / completed),
            // Share of the time in which the server's process was on a core.
            ("busy", server_cpu.as_secs_f64() / run.seconds.max(1e-9)),
            ("client_cpu_us", run.client_cpu_seconds * 1e6 / completed),
            ("client_busy_max", run.client_busy_max),
        ]);
        observed.figures.extend(run.endings.iter().map(|(label, count)| (label.clone(), float(*count))));
        if usize::try_from(run.requests).is_ok_and(|requests| requests == run.finishes.len()) {
            observed.finishes.clone_from(&run.finishes);
        }
        observed.doubts.clone_from(&run.verdict.reasons);
        observed
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &str, figure: f64) -> Self {
        self.figures.insert(name.to_owned(), figure);
        self
    }

    /// A figure; NaN if it was not measured. Every time in microseconds also exists in milliseconds.
    pub(crate) fn figure(&self, name: &str) -> f64 {
        let direct = self.figures.get(name).copied();
        let scaled = || self.figures.get(&format!("{}_us", name.strip_suffix("_ms")?)).map(|us| us / 1e3);
        direct.or_else(scaled).unwrap_or(f64::NAN)
    }
}

/// A run of a load on a subject.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Empty if the subject has only one.
    pub(crate) load: String,
    pub(crate) subject: &'static str,
    pub(crate) round: usize,
    pub(crate) seen: Observed,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    measured: Vec<Measured>,
}

impl Results {
    pub(crate) fn push(&mut self, load: impl Into<String>, subject: &'static str, round: usize, seen: Observed) {
        self.measured.push(Measured { load: load.into(), subject, round, seen });
    }

    pub(crate) fn all(&self) -> &[Measured] {
        &self.measured
    }

    pub(crate) fn of<'a>(&'a self, load: &'a str, subject: &'a str) -> impl Iterator<Item = &'a Measured> {
        self.measured.iter().filter(move |one| one.subject == subject && one.load == load)
    }

    /// A figure of each run of a load on a subject.
    pub(crate) fn figures(&self, load: &str, subject: &str, figure: &str) -> Vec<f64> {
        self.of(load, subject).map(|one| one.seen.figure(figure)).collect()
    }

    /// Median of a figure; NaN if the load was not run on the subject.
    pub(crate) fn median(&self, load: &str, subject: &str, figure: &str) -> f64 {
        interval::median(&self.figures(load, subject, figure))
    }

    /// Ratio of a figure of `subject` to that of `other`, paired by round; none with fewer than two rounds.
    pub(crate) fn ratio(&self, figure: &str, load: &str, subject: &str, other: &str) -> Option<Interval> {
        let figures = |subject| self.figures(load, subject, figure);
        interval::paired_ratio(&figures(other), &figures(subject), CONFIDENCE)
    }

    /// Reasons to doubt runs, each once, with the affected runs.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let mut doubts = BTreeMap::<&str, Vec<String>>::new();
        for one in &self.measured {
            for reason in &one.seen.doubts {
                // Figures in a reason differ from run to run; the text before them does not.
                let kind = reason.split(':').next().unwrap_or(reason);
                let kind = kind.trim_start_matches(|letter: char| !letter.is_alphabetic()).trim_start_matches("of ");
                doubts.entry(kind).or_default().push(format!("{} of {}", one.load, one.subject));
            }
        }
        let line = |(kind, runs): (&str, Vec<String>)| {
            let named = runs[..runs.len().min(DOUBTS_NAMED)].join(", ");
            let more = runs.len().saturating_sub(DOUBTS_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{kind}, in {} of {} runs: {named}{more}", runs.len(), self.measured.len())
        };
        doubts.into_iter().map(line).collect()
    }

    /// Cell with the median of a figure.
    pub(crate) fn cell(&self, load: &str, subject: &str, figure: &str, show: Show) -> Value {
        if self.of(load, subject).next().is_none() {
            return Value::text("missing");
        }
        value(key(load, subject, figure), self.median(load, subject, figure), show)
    }

    /// Cells with the medians of several figures.
    pub(crate) fn cells(&self, load: &str, subject: &str, figures: &[(&str, Show)]) -> Vec<Value> {
        figures.iter().map(|(figure, show)| self.cell(load, subject, figure, *show)).collect()
    }
}

/// Findings of an experiment.
pub(crate) struct Findings {
    pub(crate) page: Page,
    /// CSV files, by name.
    pub(crate) csvs: Vec<(&'static str, String)>,
    pub(crate) summary: Summary,
}

pub(crate) fn page(title: &str, lead: impl Into<String>) -> Page {
    Page::new(title, lead, origin::here_and_now())
}

/// Adds a warning across the page if there are reasons.
pub(crate) fn warning(page: Page, key: &str, title: &str, words: &str, reasons: Vec<String>) -> Page {
    if reasons.is_empty() {
        return page;
    }
    page.banner(Banner::new(Tone::Warning, [key, title, words], reasons))
}

/// Formats a figure.
pub(crate) type Show = fn(f64) -> String;

/// Formats with a fixed number of digits after the point.
pub(crate) fn fixed<const DIGITS: usize>(figure: f64) -> String {
    format!("{figure:.DIGITS$}")
}

pub(crate) fn key(load: &str, subject: &str, figure: &str) -> String {
    let parts = [load, subject, figure].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("_")
}

/// Cell of a figure; blank if it is not a number.
pub(crate) fn value(key: impl Into<String>, figure: f64, show: Show) -> Value {
    if figure.is_nan() { Value::text("") } else { Value::figure(key, figure, show(figure)) }
}

pub(crate) fn row<'a>(words: impl IntoIterator<Item = &'a str>, cells: impl IntoIterator<Item = Value>) -> Vec<Value> {
    words.into_iter().map(Value::text).chain(cells).collect()
}

/// Cells of a ratio: estimate and interval.
pub(crate) fn ratio_cells(key: String, ratio: Option<Interval>) -> [Value; 2] {
    match ratio {
        Some(Interval { estimate, low, high }) => {
            [value(key, estimate, fixed::<1>), Value::text(format!("{low:.1} to {high:.1}"))]
        }
        None => [Value::text(""), Value::text("needs two rounds")],
    }
}

/// A headline figure.
pub(crate) fn card(name: &str, value: Value, note: impl Into<String>) -> Card {
    Card { name: name.to_owned(), value, note: note.into(), tone: Tone::Main }
}

/// Named figures, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary(Vec<(String, f64)>);

impl Summary {
    /// Adds a figure, if measured.
    pub(crate) fn add(&mut self, key: impl Into<String>, figure: f64) {
        if !figure.is_nan() {
            self.0.push((key.into(), figure));
        }
    }

    /// Adds the medians of these figures for each of these subjects.
    pub(crate) fn medians(&mut self, results: &Results, load: &str, subjects: &[&str], figures: &[&str]) {
        for subject in subjects {
            for figure in figures {
                self.add(key(load, subject, figure), results.median(load, subject, figure));
            }
        }
    }

    /// Adds a ratio and the ends of its interval, if there is one.
    pub(crate) fn ratio(&mut self, name: &str, ratio: Option<Interval>) {
        if let Some(Interval { estimate, low, high }) = ratio {
            self.0
                .extend([("", estimate), ("_low", low), ("_high", high)].map(|(end, at)| (format!("{name}{end}"), at)));
        }
    }

    pub(crate) fn figures(&self) -> &[(String, f64)] {
        &self.0
    }
}

/// Columns of a CSV file of runs.
pub(crate) const RUN_COLUMNS: [&str; 14] = [
    "load",
    "server=subject",
    "round",
    "requests",
    "errors",
    "seconds",
    "requests_per_second=per_second",
    "mean_us",
    "p50_us",
    "p99_us",
    "p999_us",
    "server_cpu_us_a_request=cpu_us",
    "client_busy_max",
    "doubts",
];

/// One row per run. A column is a figure's name, or `load`, `subject`, `round` or `doubts`; a different heading
/// precedes it with `=`.
pub(crate) fn runs_csv<'a>(runs: impl IntoIterator<Item = &'a Measured>, columns: &[&str]) -> anyhow::Result<String> {
    let columns: Vec<_> = columns.iter().map(|column| column.split_once('=').unwrap_or((column, column))).collect();
    let cell = |one: &Measured, column: &str| match column {
        "load" => one.load.clone(),
        "subject" => one.subject.to_owned(),
        "round" => one.round.to_string(),
        "doubts" => one.seen.doubts.join("; "),
        figure => Some(one.seen.figure(figure))
            .filter(|figure| !figure.is_nan())
            .map_or_else(String::new, |it| it.to_string()),
    };
    let rows = runs.into_iter().map(|one| columns.iter().map(|(_, column)| cell(one, column)).collect());
    csv(columns.iter().map(|(head, _)| *head), rows)
}

/// One row per request, for runs that kept every completion.
pub(crate) fn requests_csv(results: &Results) -> anyhow::Result<String> {
    let heads = ["load", "server", "round", "client", "turn", "finished_seconds", "response_us"];
    let rows = results.all().iter().flat_map(|one| {
        one.seen.finishes.iter().map(|finish| {
            let of_run = [one.load.clone(), one.subject.to_owned(), one.round.to_string()];
            let of_request = [finish.client.to_string(), finish.turn.to_string()];
            let times = [finish.at_seconds, finish.response_us].map(|time| time.to_string());
            of_run.into_iter().chain(of_request).chain(times).collect()
        })
    });
    csv(heads, rows)
}

#[cfg(test)]
mod tests {
    use bench::measurement::Verdict;

    use super::*;

    #[test]
    fn doubts_are_told_by_reason_with_the_first_runs_and_how_many_more() {
        let mut results = Results::default();
        for round in 0..20 {
            let verdict = if round > 0 {
                Verdict::invalid(format!("{round}.5% of the time was stolen"))
            } else {
                Verdict::default()
            };
            let run = Run { verdict, ..Run::default() };
            results.push("buy", "quire", round, Observed::of_run(&run, Duration::ZERO));
        }
        let named = ["buy of quire"; DOUBTS_NAMED].join(", ");
        assert_eq!(results.doubts(), [format!("the time was stolen, in 19 of 20 runs: {named} and 11 more")]);
    }

    #[test]
    fn a_time_can_be_asked_for_in_milliseconds_and_a_figure_that_is_not_there_is_not_a_number() {
        let seen = Observed::new([("p50_us", 1500.0)]);
        assert!((seen.figure("p50_ms") - 1.5).abs() < 1e-9);
        assert!(seen.figure("p90_ms").is_nan() && seen.figure("done").is_nan());
    }

    #[test]
    fn a_sample_of_the_finishes_is_not_passed_off_as_a_row_a_request() {
        let finish = |turn| Finish { client: 0, turn, at_seconds: 0.5, response_us: 7.0 };
        let whole = Run { requests: 3, finishes: (0..3).map(finish).collect(), ..Run::default() };
        let sample = Run { requests: 4, ..whole.clone() };
        let mut results = Results::default();
        for (round, run) in [whole, sample].iter().enumerate() {
            results.push("buy", "quire", round, Observed::of_run(run, Duration::ZERO));
        }
        let rows = requests_csv(&results).expect("rows");
        assert_eq!(rows.lines().count(), 1 + 3);
        assert!(rows.lines().skip(1).all(|row| row.starts_with("buy,quire,0,")));
    }

    #[test]
    fn a_warning_is_on_the_page_only_if_there_are_reasons_for_it() {
        let warned = |reasons: &[&str]| {
            let reasons = reasons.iter().map(|&reason| reason.to_owned()).collect();
            warning(page("Records", ""), "missing", "Not measured", "These:", reasons).finish()
        };
        assert!(warned(&["duckdb: no module"]).contains("duckdb: no module"));
        assert!(!warned(&[]).contains("Not measured"));
    }

    #[test]
    fn a_column_has_its_head_and_a_figure_that_was_not_measured_an_empty_cell() {
        let mut results = Results::default();
        results.push("buy", "quire", 1, Observed::new([("per_second", 2.5), ("requests", 10.0)]));
        let columns = ["load", "server=subject", "round", "rate=per_second", "requests", "errors", "doubts"];
        let rows = runs_csv(results.all(), &columns).expect("rows");
        assert_eq!(rows, "load,server,round,rate,requests,errors,doubts\nbuy,quire,1,2.5,10,,\n");
    }
}
