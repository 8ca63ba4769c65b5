//! Results of experiments: cells, cards and charts of a page, CSV files, named figures.
//!
//! A figure's key joins its load, subject and name; page and summary use the same keys.

use bench::report::origin;
use bench::report::page::{Banner, Card, Page, Table, Tone, Value};
use bench::report::table::csv;
use bench::stats::interval::Interval;

use crate::results::{Measured, Results};

/// Findings of an experiment.
pub struct Findings {
    /// The report page.
    pub page: Page,
    /// CSV files, by name.
    pub csvs: Vec<(&'static str, String)>,
    /// Named figures.
    pub summary: Summary,
}

/// Begins an experiment's page.
pub fn page(title: &str) -> Page {
    Page::new(title).origin(origin::here_and_now())
}

/// Adds a warning across the page if there are reasons.
pub fn warning(page: Page, key: &str, title: &str, words: &str, reasons: Vec<String>) -> Page {
    if reasons.is_empty() {
        return page;
    }
    page.banner(Banner::new(Tone::Warning, [key, title, words], reasons))
}

/// Formats a figure.
pub type Show = fn(f64) -> String;

/// Formats with a fixed number of digits after the point.
pub fn fixed<const DIGITS: usize>(figure: f64) -> String {
    format!("{figure:.DIGITS$}")
}

/// Key of a figure.
pub fn key(load: &str, subject: &str, figure: &str) -> String {
    let parts = [load, subject, figure].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("_")
}

/// Cell of a figure; blank if it is not a number.
pub fn value(key: impl Into<String>, figure: f64, show: Show) -> Value {
    if figure.is_nan() { Value::text("") } else { Value::figure(key, figure, show(figure)) }
}

impl Results {
    /// Cell with the median of a figure.
    pub fn cell(&self, load: &str, subject: &str, figure: &str, show: Show) -> Value {
        if self.of(load, subject).next().is_none() {
            return Value::text("missing");
        }
        value(key(load, subject, figure), self.median(load, subject, figure), show)
    }

    /// Cells with the medians of several figures.
    pub fn cells(&self, load: &str, subject: &str, figures: &[(&str, Show)]) -> Vec<Value> {
        figures.iter().map(|(figure, show)| self.cell(load, subject, figure, *show)).collect()
    }
}

/// A row that begins with text.
pub fn row<'a>(words: impl IntoIterator<Item = &'a str>, cells: impl IntoIterator<Item = Value>) -> Vec<Value> {
    words.into_iter().map(Value::text).chain(cells).collect()
}

/// A table with text in its first column and numbers in the others.
pub fn table<'a>(
    caption: &str,
    heads: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = Vec<Value>>,
) -> Table {
    rows.into_iter().fold(Table::of_numbers(caption, heads), Table::row)
}

/// Cells of a ratio: estimate and interval.
pub fn ratio_cells(key: String, ratio: Option<Interval>) -> [Value; 2] {
    match ratio {
        Some(Interval { estimate, low, high }) => {
            [value(key, estimate, fixed::<1>), Value::text(format!("{low:.1} to {high:.1}"))]
        }
        None => [Value::text(""), Value::text("needs two rounds")],
    }
}

/// A headline figure.
pub fn card(name: &str, value: Value, note: impl Into<String>) -> Card {
    Card { name: name.to_owned(), value, note: note.into(), tone: Tone::Main }
}

/// Named figures, in order.
#[derive(Clone, Debug, Default)]
pub struct Summary(Vec<(String, f64)>);

impl Summary {
    /// Adds a figure, if measured.
    pub fn add(&mut self, key: impl Into<String>, figure: f64) {
        if !figure.is_nan() {
            self.0.push((key.into(), figure));
        }
    }

    /// Adds the medians of these figures for each of these subjects.
    pub fn medians(&mut self, results: &Results, load: &str, subjects: &[&str], figures: &[&str]) {
        for subject in subjects {
            for figure in figures {
                self.add(key(load, subject, figure), results.median(load, subject, figure));
            }
        }
    }

    /// Adds a ratio and the ends of its interval, if there is one.
    pub fn ratio(&mut self, name: &str, ratio: Option<Interval>) {
        if let Some(Interval { estimate, low, high }) = ratio {
            self.0
                .extend([("", estimate), ("_low", low), ("_high", high)].map(|(end, at)| (format!("{name}{end}"), at)));
        }
    }

    /// All figures.
    pub fn figures(&self) -> &[(String, f64)] {
        &self.0
    }
}

/// Columns of a CSV file of runs.
pub const RUN_COLUMNS: [&str; 14] = [
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
pub fn runs_csv<'a>(runs: impl IntoIterator<Item = &'a Measured>, columns: &[&str]) -> anyhow::Result<String> {
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
pub fn requests_csv(results: &Results) -> anyhow::Result<String> {
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
    use std::time::Duration;

    use bench::measurement::Finish;
    use bench::measurement::Run;

    use super::*;
    use crate::results::Observed;

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
            warning(page("Records"), "missing", "Not measured", "These:", reasons).finish()
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
