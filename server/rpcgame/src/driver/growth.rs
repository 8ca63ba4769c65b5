//! The window of calls: a given one, or one that grows while that makes the game faster. Has no clock.
//!
//! A server may block a thread for each message that waits for its turn. A wide window slows such a server down; and if
//! messages reach its threads out of order, a window of more calls than it has threads can deadlock it, without
//! warning. So the window starts at a single call, grows only if a trial of a wider one is clearly faster, and stays
//! small unless the server is known to hold waiting messages without threads.

use std::time::Duration;

/// Gain of a trial over the best window so far that makes it worthwhile. A server that holds messages without threads
/// gains more at every useful step; gains by chance are smaller.
const GAIN: f64 = 1.2;
/// Growth factor of a trial: a wide step shows its gain even on a busy machine.
const STEP: u64 = 4;
/// The same for unknown servers, where a narrow step risks little.
const STEP_UNKNOWN: u64 = 2;
/// Trials without a gain before the window settles. One may have been bad luck.
const MISSES_MAX: u32 = 2;
/// Limit for servers that hold waiting messages without threads; wider windows gain nothing on a connection.
const WINDOW_MAX: u64 = 1024;
/// Limit for unknown servers: fewer than the threads of any reasonable pool.
const WINDOW_MAX_UNKNOWN: u64 = 8;
/// Minimum length of a trial in windows of answers.
const ROUNDS: u64 = 16;
/// Minimum duration of a trial.
const TRIAL: Duration = Duration::from_millis(10);

/// Limit of calls in flight.
#[derive(Debug)]
pub(super) enum Window {
    Given(u64),
    Growing(Growth),
}

impl Window {
    /// Adapts the size if none is given.
    pub(super) fn new(given: Option<u64>) -> Self {
        given.map_or_else(|| Self::Growing(Growth::default()), |window| Self::Given(window.max(1)))
    }

    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Given(size) => *size,
            Self::Growing(growth) => growth.size,
        }
    }

    /// The largest size it may reach.
    pub(super) fn size_max(&self) -> u64 {
        match self {
            Self::Given(size) => *size,
            Self::Growing(growth) => growth.size_max,
        }
    }

    /// True if the size is adapted.
    pub(super) fn is_growing(&self) -> bool {
        matches!(self, Self::Growing(_))
    }

    /// Limits growth, for servers that may need a thread for each waiting message.
    pub(super) fn be_careful(&mut self) {
        if let Self::Growing(growth) = self {
            (growth.size_max, growth.step) = (WINDOW_MAX_UNKNOWN, STEP_UNKNOWN);
        }
    }

    /// The adapted size, if none was given.
    pub(super) fn found(&self) -> Option<u64> {
        match self {
            Self::Given(_) => None,
            Self::Growing(growth) => Some(growth.suits),
        }
    }

    /// Reports that `messages` were answered by `now`, the time since the game began.
    #[inline]
    pub(super) fn answered(&mut self, messages: u64, now: Duration) {
        match self {
            Self::Growing(growth) if !growth.is_settled => growth.answered(messages, now),
            _ => {}
        }
    }
}

/// An adaptive window.
#[derive(Debug)]
pub(super) struct Growth {
    /// The current size, also during a trial.
    size: u64,
    size_max: u64,
    step: u64,
    /// The largest size that was worthwhile.
    suits: u64,
    /// Rate at that size; `None` until it is measured.
    rate: Option<f64>,
    misses: u32,
    is_settled: bool,
    /// Number of the first answer at this size: earlier ones were requested at another.
    from: u64,
    /// Answers and time at the beginning of the measurement.
    begun: Option<(u64, Duration)>,
}

impl Default for Growth {
    fn default() -> Self {
        let (size_max, step) = (WINDOW_MAX, STEP);
        Self { size: 1, size_max, step, suits: 1, rate: None, misses: 0, is_settled: false, from: 1, begun: None }
    }
}

impl Growth {
    fn answered(&mut self, messages: u64, now: Duration) {
        let Some((first, since)) = self.begun else {
            if messages >= self.from {
                self.begun = Some((messages, now));
            }
            return;
        };
        let (answers, elapsed) = (messages - first, now.saturating_sub(since));
        if answers < ROUNDS * self.size || elapsed < TRIAL {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "rates are compared roughly")]
        let rate = answers as f64 / elapsed.as_secs_f64();
        let next = match self.rate {
            None => {
                self.rate = Some(rate);
                self.step * self.suits
            }
            Some(before) if rate >= GAIN * before => {
                (self.suits, self.rate, self.misses) = (self.size, Some(rate), 0);
                self.step * self.size
            }
            Some(_) => {
                self.misses += 1;
                // Measured again before the next trial, as the reference may have been luck.
                self.rate = None;
                self.suits
            }
        };
        self.is_settled = self.misses == MISSES_MAX || next > self.size_max;
        // Requests made at the old size are answered first.
        self.from = messages + self.size;
        self.size = if self.is_settled { self.suits } else { next };
        self.begun = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays against a server of a given rate by window; returns the window found and the widest that was tried.
    fn play(messages: u64, rate: impl Fn(u64) -> f64) -> (u64, u64) {
        play_with(Window::new(None), messages, rate)
    }

    fn play_with(mut window: Window, messages: u64, rate: impl Fn(u64) -> f64) -> (u64, u64) {
        let (mut now, mut widest) = (0.0, 1);
        for answered in 1..=messages {
            now += 1.0 / rate(window.size());
            window.answered(answered, Duration::from_secs_f64(now));
            widest = widest.max(window.size());
        }
        assert!(window.size() <= window.size_max());
        (window.found().unwrap(), widest)
    }

    #[expect(clippy::cast_precision_loss, reason = "windows are small")]
    fn real(window: u64) -> f64 {
        window as f64
    }

    #[test]
    fn a_server_that_gains_by_every_call_gets_the_widest_window() {
        assert_eq!(play(2_000_000, |window| 4000.0 * real(window)), (1024, 1024));
    }

    #[test]
    fn a_server_that_is_not_known_gets_a_small_window_whatever_it_gains() {
        let mut window = Window::new(None);
        window.be_careful();
        assert_eq!(play_with(window, 2_000_000, |window| 4000.0 * real(window)), (8, 8));
    }

    #[test]
    fn a_window_that_gains_nothing_is_tried_once_more_and_left() {
        assert_eq!(play(100_000, |_| 4000.0), (1, 4));
        assert_eq!(play(1_000_000, |window| 4000.0 * real(window.min(24))), (64, 256));
    }

    #[test]
    fn a_server_that_slows_down_with_each_waiting_message_gets_the_window_that_suits_it() {
        // Each answer wakes every waiting thread.
        let rate = |window: u64| 1.0 / (50e-6 + 200e-6 / real(window) + 2e-6 * real(window));
        assert_eq!(play(1_000_000, rate), (4, 16));
    }

    #[test]
    fn a_game_that_is_over_before_the_window_has_grown_says_what_it_came_to() {
        assert_eq!(play(10, |_| 100.0), (1, 1));
    }

    #[test]
    fn a_given_window_stays() {
        let mut window = Window::new(Some(7));
        for messages in 1..1000 {
            window.answered(messages, Duration::from_millis(messages));
            assert_eq!((window.size(), window.size_max(), window.found()), (7, 7, None));
        }
    }
}
