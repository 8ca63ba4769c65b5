//! The progress line of a run, shown on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::units;
use crate::run::Progress;

const PARTS: u64 = 1000;

#[derive(Debug)]
pub(crate) struct Line {
    bar: ProgressBar,
}

impl Line {
    /// A line on standard error if that is a terminal and `quiet` is not set; otherwise hidden.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(PARTS) };
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Shows the progress of the run called `name`.
    pub(crate) fn show(&self, name: &str, progress: &Progress) {
        if self.bar.is_hidden() {
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a thousand")]
        let parts = (done(progress).clamp(0.0, 1.0) * units::float(PARTS)) as u64;
        self.bar.set_position(parts);
        self.bar.set_message(line(name, progress));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Completed share of the run, by time or by requests.
fn done(progress: &Progress) -> f64 {
    let by_time = progress.total.map(|total| progress.elapsed.as_secs_f64() / total.as_secs_f64());
    let by_count = progress.requests_total.map(|total| units::share(progress.requests, total));
    by_time.or(by_count).unwrap_or(0.0)
}

fn line(name: &str, progress: &Progress) -> String {
    let time = |micros| if progress.rate > 0.0 { units::micros(micros) } else { "–".to_owned() };
    let errors = format!("{} error{}", units::count(progress.errors), if progress.errors == 1 { "" } else { "s" });
    let left = progress.total.map(|total| total.saturating_sub(progress.elapsed));
    let left = left
        .or_else(|| Duration::try_from_secs_f64(progress.elapsed.as_secs_f64() * (1.0 / done(progress) - 1.0)).ok());
    let left = left.map(|left| format!("  {} s left", left.as_secs_f64().ceil())).unwrap_or_default();
    let (rate, p50, p99) = (units::rate(progress.rate), time(progress.p50_us), time(progress.p99_us));
    format!("{name}: {rate}  p50 {p50}  p99 {p99}  {errors}{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_the_last_seconds_figures_and_what_is_left() {
        let progress = Progress {
            elapsed: Duration::from_millis(1_800),
            total: Some(Duration::from_secs(10)),
            requests: 7,
            requests_total: None,
            errors: 1,
            rate: 123_456.7,
            p50_us: 81.2,
            p99_us: 1_234.0,
        };
        assert_eq!(
            line("run 2 of 5", &progress),
            "run 2 of 5: 123,457 /s  p50 81.2 µs  p99 1.23 ms  1 error  9 s left"
        );
        let counted = Progress { total: None, requests_total: Some(70), rate: 0.0, errors: 0, ..progress };
        assert_eq!(line("run", &counted), "run: 0 /s  p50 –  p99 –  0 errors  17 s left");
        let nothing = Progress { requests: 0, ..counted };
        assert_eq!(line("run", &nothing), "run: 0 /s  p50 –  p99 –  0 errors");
        Line::new(true).show("run", &nothing);
    }
}
