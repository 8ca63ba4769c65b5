//! A measurement on the terminal: its validity, then its figures in aligned columns.

use std::fmt::Write as _;

use super::figures::{self, FIGURES, TIMES, merged};
use super::units;
use crate::measurement::{Report, Run};

const ENDINGS_SHOWN_MAX: usize = 12;

/// Characters of the longest bar of the server's latencies.
const BAR_LETTERS: f64 = 32.0;

/// The summary, with a final newline.
pub(crate) fn text(report: &Report) -> String {
    let runs = &report.runs;
    let mut parts = vec![verdict(runs), headline(report)];
    if runs.len() > 1 {
        parts.push(over_runs(runs));
    }
    parts.extend([times(runs), endings(runs), resources(runs), server(runs)]);
    parts.retain(|part| !part.is_empty());
    printable(&parts.join("\n"))
}

/// Replaces control characters, so that text from outside cannot control the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter }).collect()
}

fn verdict(runs: &[Run]) -> String {
    let mut text = String::new();
    let several = runs.len() > 1;
    for (index, run) in runs.iter().enumerate() {
        let of = if several { format!(" run {}", index + 1) } else { String::new() };
        let kinds = [
            ("INVALID", "do not trust these figures", &run.verdict.reasons),
            ("DOUBTFUL", "read these figures with care", &run.verdict.doubts),
        ];
        for (title, advice, reasons) in kinds.into_iter().filter(|(_, _, reasons)| !reasons.is_empty()) {
            line(&mut text, &format!("{title}{of}: {advice}"));
            for reason in reasons {
                line(&mut text, &format!("  - {}", reason.replace('\n', " ")));
            }
        }
        if run.interrupted {
            line(&mut text, &format!("INTERRUPTED{of}: interrupted after {}", units::micros(run.seconds * 1e6)));
        }
    }
    if runs.iter().all(|run| run.requests == 0) {
        line(&mut text, "NOTHING MEASURED: no request was made within the measured time");
    }
    text
}

fn headline(report: &Report) -> String {
    let runs = &report.runs;
    let requests: u64 = runs.iter().map(|run| run.requests).sum();
    let errors: u64 = runs.iter().map(|run| run.errors).sum();
    let seconds: f64 = runs.iter().map(|run| run.seconds).sum();
    let in_runs = if runs.len() > 1 { format!(" in {} runs", runs.len()) } else { String::new() };
    let asked = report.load.rate.map(|rate| format!(" of {} asked for", units::rate(rate))).unwrap_or_default();
    let rate = figures::range(&FIGURES[0], runs).map_or(0.0, |range| range.median);
    format!(
        "{}{asked}: {} requests in {}{in_runs}, {} errors ({})\n",
        units::rate(rate),
        units::count(requests),
        units::micros(seconds * 1e6),
        units::count(errors),
        units::percent(units::share(errors, requests)),
    )
}

fn over_runs(runs: &[Run]) -> String {
    let rows = FIGURES.iter().filter_map(|figure| {
        let range = figures::range(figure, runs)?;
        Some(
            [figure.name.to_owned(), (figure.show)(range.median), (figure.show)(range.low), (figure.show)(range.high)]
                .to_vec(),
        )
    });
    table(&["over runs", "median", "smallest", "largest"], rows)
}

fn times(runs: &[Run]) -> String {
    let rows = TIMES.iter().filter_map(|times| {
        let all = merged(runs, times.of);
        let shares = [0.5, 0.9, 0.99, 0.999].map(|share| all.quantile_us(share));
        let values = [all.mean_us()].into_iter().chain(shares).chain([all.max_us()]);
        let row = [times.name.to_owned()].into_iter().chain(values.map(units::micros)).collect::<Vec<_>>();
        (all.count() > 0).then_some(row)
    });
    table(&["time", "mean", "p50", "p90", "p99", "p99.9", "max"], rows)
}

fn endings(runs: &[Run]) -> String {
    let rows = figures::endings(runs, ENDINGS_SHOWN_MAX).into_iter();
    let rows = rows.map(|(ending, count, share)| vec![ending.to_owned(), units::count(count), units::percent(share)]);
    table(&["ended as", "requests", "share"], rows)
}

fn resources(runs: &[Run]) -> String {
    let seconds: f64 = runs.iter().map(|run| run.seconds).sum();
    let bytes = |of: fn(&Run) -> u64| {
        let all: f64 = runs.iter().map(|run| units::float(of(run))).sum();
        let a_second = if seconds > 0.0 { all / seconds } else { 0.0 };
        format!("{} ({}/s)", units::bytes(all), units::bytes(a_second))
    };
    let mut rows = vec![
        ["bytes sent".to_owned(), bytes(|run| run.sent_bytes)].to_vec(),
        ["bytes received".to_owned(), bytes(|run| run.received_bytes)].to_vec(),
    ];
    let cpu =
        FIGURES.iter().filter(|figure| ["client_cpu_us", "client_busy_max", "server_cpu_us"].contains(&figure.key));
    rows.extend(cpu.filter_map(|figure| {
        let median = figures::range(figure, runs)?.median;
        Some(vec![figure.name.to_owned(), (figure.show)(median)])
    }));
    table(&["resources", ""], rows)
}

fn server(runs: &[Run]) -> String {
    let buckets = figures::server_latency(runs);
    let calls: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    let most = buckets.iter().map(|bucket| bucket.1).max().unwrap_or(0);
    let last_finite = buckets.iter().map(|bucket| bucket.0).filter(|bound| bound.is_finite()).fold(0.0, f64::max);
    let rows = buckets.iter().filter(|bucket| bucket.1 > 0).map(|&(bound, count)| {
        let name = if bound.is_finite() {
            format!("up to {}", units::micros(bound * 1e6))
        } else {
            format!("over {}", units::micros(last_finite * 1e6))
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a line's letters")]
        let letters = (units::share(count, most) * BAR_LETTERS).ceil() as usize;
        vec![name, units::count(count), units::percent(units::share(count, calls)), "█".repeat(letters)]
    });
    table(&["in the server", "calls", "share", ""], rows)
}

/// A table with a final newline; empty if there are no rows.
fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() { String::new() } else { format!("{}\n", super::table::table(heads, rows)) }
}

fn line(text: &mut String, words: &str) {
    writeln!(text, "{words}").expect("a string takes every character");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn what_speaks_against_the_figures_comes_before_them() {
        let mut run = fixtures::busy();
        run.verdict.reasons = vec!["the send lag grew".to_owned()];
        run.interrupted = true;
        let text = text(&fixtures::report(vec![run]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "INVALID: do not trust these figures");
        assert_eq!(lines[1], "  - the send lag grew");
        assert_eq!(lines[2], "INTERRUPTED: interrupted after 2.00 s");
        assert_eq!(lines[4], "500 /s: 1,000 requests in 2.00 s, 0 errors (0%)");
    }

    #[test]
    fn times_endings_and_resources_stand_in_columns() {
        let text = text(&fixtures::report(vec![fixtures::busy()]));
        let row = |name: &str| {
            let line =
                text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("response"), "response 50.0 ms 50.0 ms 90.0 ms 99.0 ms 99.9 ms 100 ms");
        assert_eq!(row("OK"), "OK 1,000 100%");
        assert_eq!(row("server CPU a call"), "server CPU a call 10.0 µs");
        assert!(row("over 100 ms").starts_with("over 100 ms 10 1.00% █"));
        assert!(!text.contains("send lag"), "a closed loop has none");
    }

    #[test]
    fn runs_that_measured_nothing_or_only_errors_have_a_summary() {
        assert!(text(&fixtures::report(vec![])).starts_with("NOTHING MEASURED"));
        assert!(text(&fixtures::report(vec![fixtures::empty()])).starts_with("NOTHING MEASURED"));
        let errors = text(&fixtures::report(vec![fixtures::all_errors()]));
        assert!(errors.contains("2 errors (100%)") && errors.contains("UNAVAILABLE"), "{errors}");
        assert!(text(&fixtures::report(vec![fixtures::one()])).contains("1 requests"));
    }

    #[test]
    fn several_runs_show_their_median_and_range() {
        let runs = [100.0, 300.0, 200.0].map(|rate| Run { rate, ..fixtures::busy() });
        let text = text(&fixtures::report(runs.into()));
        let rate = text.lines().find(|line| line.starts_with("rate")).expect("a row");
        assert_eq!(rate.split_whitespace().collect::<Vec<_>>().join(" "), "rate 200 /s 100 /s 300 /s");
    }

    #[test]
    fn words_from_outside_cannot_steer_the_terminal() {
        let mut run = fixtures::busy();
        run.endings = [("\u{1b}[2J\rOK".to_owned(), 1)].into();
        let text = text(&fixtures::report(vec![run]));
        assert!(!text.contains('\u{1b}') && !text.contains('\r'));
    }
}
