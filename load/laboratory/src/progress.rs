//! Progress of an experiment on standard error: the current step, the share done, and the time left.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Prints progress.
#[derive(Debug, Default)]
pub struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    began: Option<Instant>,
    steps: usize,
    /// Steps that have begun, including the current one.
    begun: usize,
    /// Expected time of all steps.
    expected: Duration,
    /// Expected time of the finished steps.
    ended: Duration,
    /// The current step and its expected time.
    current: (String, Duration),
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces further steps, each with this expected time.
    pub fn expect(&self, steps: usize, each: Duration) {
        let mut state = self.lock();
        state.steps += steps;
        state.expected += each * u32::try_from(steps).unwrap_or(u32::MAX);
    }

    /// Begins a step. Without a time of its own, the mean of all is expected.
    pub fn begin(&self, what: impl Into<String>, should_take: Option<Duration>) {
        eprintln!("{}", self.lock().begin(what.into(), should_take, Instant::now()));
    }

    /// Ends the step, with its result.
    pub fn end(&self, found: &str) {
        eprintln!("{}", self.lock().end(found));
    }
}

impl State {
    fn begin(&mut self, what: String, should_take: Option<Duration>, now: Instant) -> String {
        let elapsed = now.saturating_duration_since(*self.began.get_or_insert(now));
        let mean = self.expected / u32::try_from(self.steps.max(1)).unwrap_or(u32::MAX);
        self.begun += 1;
        let left = seconds(self.left(elapsed));
        self.current = (what, should_take.unwrap_or(mean));
        let (what, takes) = &self.current;
        format!("{} {what}: begins; about {}, and {left} left in all", self.place(), seconds(*takes))
    }

    fn end(&mut self, found: &str) -> String {
        self.ended += self.current.1;
        format!("{} {}: {found}", self.place(), self.current.0)
    }

    fn place(&self) -> String {
        format!("[{} of {}]", self.begun, self.steps.max(self.begun))
    }

    /// Expected time of the remaining steps, at the pace of the finished ones.
    fn left(&self, elapsed: Duration) -> Duration {
        let left = self.expected.saturating_sub(self.ended);
        if self.ended.is_zero() { left } else { left.mul_f64(elapsed.as_secs_f64() / self.ended.as_secs_f64()) }
    }
}

/// Formats in seconds, or from two minutes on in minutes.
fn seconds(time: Duration) -> String {
    let whole = time.as_secs_f64().ceil();
    if whole < 120.0 { format!("{whole:.0} s") } else { format!("{:.0} min", (whole / 60.0).round()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_says_which_of_how_many_it_is_and_what_is_left_at_the_pace_so_far() {
        let progress = Progress::default();
        progress.expect(1, Duration::from_secs(200));
        progress.expect(3, Duration::from_secs(10));
        let (mut state, began) = (progress.lock(), Instant::now());
        let mut begin = |what: &str, takes: Option<u64>, after: u64| {
            state.begin(what.to_owned(), takes.map(Duration::from_secs), began + Duration::from_secs(after))
        };
        assert_eq!(begin("none", Some(200), 0), "[1 of 4] none: begins; about 3 min, and 4 min left in all");
        assert_eq!(state.end("215.4 s"), "[1 of 4] none: 215.4 s");
        // Everything takes twice as long as expected.
        let mut begin = |what: &str, takes: Option<u64>, after: u64| {
            state.begin(what.to_owned(), takes.map(Duration::from_secs), began + Duration::from_secs(after))
        };
        assert_eq!(begin("task", Some(10), 400), "[2 of 4] task: begins; about 10 s, and 60 s left in all");
        assert_eq!(begin("more", None, 420), "[3 of 4] more: begins; about 58 s, and 63 s left in all");
    }
}
