//! The progress line of a run. It is shown on a terminal only.
//!
//! Must not know where the figures come from.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::{figures, units};

/// Parts that the bar is made of.
const PARTS: u64 = 1000;

/// How a run goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Live {
    /// Part of the run that is done, 0 to 1: of its time, or of its requests.
    pub(crate) done: f64,
    /// Requests a second in the last second.
    pub(crate) rate: f64,
    /// Of the response times in the last second; none if nothing ended.
    pub(crate) p50_us: Option<f64>,
    /// See above.
    pub(crate) p99_us: Option<f64>,
    /// Errors since the beginning.
    pub(crate) errors: u64,
    /// Time until the end, where it can be told.
    pub(crate) left: Option<Duration>,
}

/// The line on the terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A line on standard error if that is a terminal and `quiet` is not wanted; otherwise nothing is ever shown.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(PARTS) };
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Shows how the run goes; `name` says which run or that it is the warm-up.
    pub(crate) fn show(&self, name: &str, live: &Live) {
        if self.bar.is_hidden() {
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a thousand")]
        let parts = (live.done.clamp(0.0, 1.0) * units::float(PARTS)) as u64;
        self.bar.set_position(parts);
        self.bar.set_message(line(name, live));
    }

    /// Takes the line away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The words beside the bar.
fn line(name: &str, live: &Live) -> String {
    let mut parts = vec![figures::rate(live.rate)];
    for (percentile, time) in [("p50", live.p50_us), ("p99", live.p99_us)] {
        parts.push(format!("{percentile} {}", time.map_or_else(|| "–".to_owned(), units::micros)));
    }
    parts.push(format!("{} error{}", units::count(live.errors), if live.errors == 1 { "" } else { "s" }));
    if let Some(left) = live.left {
        parts.push(format!("{} s left", left.as_secs_f64().ceil()));
    }
    let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
    format!("{name}{}", parts.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_the_last_seconds_figures() {
        let live = Live {
            rate: 123_456.7,
            p50_us: Some(81.2),
            p99_us: Some(1_234.0),
            errors: 1,
            left: Some(Duration::from_millis(8_200)),
            ..Live::default()
        };
        assert_eq!(line("run 2 of 5", &live), "run 2 of 5: 123,457 /s  p50 81.2 µs  p99 1.23 ms  1 error  9 s left");
        assert_eq!(line("", &Live::default()), "0 /s  p50 –  p99 –  0 errors");
    }

    #[test]
    fn nothing_is_drawn_where_there_is_no_terminal_or_quiet_is_wanted() {
        assert!(Progress::new(true).bar.is_hidden());
        let odd = Live { done: f64::NAN, rate: f64::INFINITY, ..Live::default() };
        Progress::new(true).show("warm-up", &odd);
    }
}
