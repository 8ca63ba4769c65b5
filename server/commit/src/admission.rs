//! Admission control that bounds a queue by time instead of length: by the rate at which jobs last left a backlog.
//!
//! A length cannot bound waiting: 16,384 jobs are a third of a second for a store that commits 50,000 a second, and
//! three quarters of a minute for one that commits 350. So backlogs are detected as in `CoDel` (Nichols and Jacobson,
//! 2012): a queue that is not emptied for [`INTERVAL`] is standing; a burst drains sooner. While the queue stands the
//! store works at capacity, so its rate is its capacity; a rate measured at low load only reflects that load. From then
//! on a job is refused before it waits if its turn would come too late at that rate.
//!
//! `CoDel` itself drops jobs from the head after they have waited. Refusal on arrival costs the caller no time, and the
//! returned delay is a hint when to retry. Jobs that `CoDel` would drop from the head are dropped here as well: those
//! whose caller has gone, and in a backlog those that could only be committed after their deadline. A gradient limiter
//! would need round trips at low load for comparison, and would mistake a group commit, whose time grows with its
//! batch, for congestion.
//!
//! A single batch that outlasts its jobs' deadlines is not prevented: bound the batch.

use std::time::{Duration, Instant};

/// Time a queue must stand before jobs are refused, and must be clear before all are admitted again.
const INTERVAL: Duration = Duration::from_millis(100);

/// Minimum retry delay of a refused job.
pub const RETRY_AFTER_MIN: Duration = INTERVAL;

/// Maximum wait in a backlog, for jobs without a deadline or with a distant one.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Rate of the store while its queue stood.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Time per job.
    job: Duration,
    /// Time per batch.
    batch: Duration,
}

/// Consecutive takes that left jobs behind.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    jobs: u32,
    batches: u32,
}

/// Measures how a queue drains, and decides whether another job may wait in it.
#[derive(Debug, Default)]
pub struct Admission {
    window: Option<Window>,
    /// `Some` while the queue stands.
    pace: Option<Pace>,
    /// Time of the last take that left jobs behind.
    left_at: Option<Instant>,
}

impl Admission {
    /// Records that a batch of `jobs` was taken and that `left` still wait.
    pub fn taken(&mut self, now: Instant, jobs: usize, left: usize) {
        self.note(now, 1, jobs, left);
    }

    /// Records that `jobs` were added to the batch taken last, and that `left` still wait.
    pub(crate) fn added(&mut self, now: Instant, jobs: usize, left: usize) {
        self.note(now, 0, jobs, left);
    }

    fn note(&mut self, now: Instant, batches: u32, jobs: usize, left: usize) {
        if left == 0 {
            // The store may be idle until the next take.
            self.window = None;
            self.end_if_clear(now);
            return;
        }
        self.left_at = Some(now);
        let begun = Window { since: now, jobs: u32::try_from(jobs).unwrap_or(u32::MAX), batches: batches.max(1) };
        let Some(window) = &mut self.window else {
            self.window = Some(begun);
            return;
        };
        let elapsed = now.saturating_duration_since(window.since);
        if elapsed < INTERVAL || batches == 0 {
            window.jobs = window.jobs.saturating_add(begun.jobs);
            window.batches += batches;
            return;
        }
        let measured = Pace { job: elapsed / window.jobs.max(1), batch: elapsed / window.batches };
        // Average with the past, so that one slow commit does not dominate.
        self.pace = Some(self.pace.map_or(measured, |pace| Pace {
            job: (pace.job + measured.job) / 2,
            batch: (pace.batch + measured.batch) / 2,
        }));
        self.window = Some(begun);
    }

    /// True if the queue stands, so that [`Admission::admit`] may refuse a job.
    pub fn is_standing(&self) -> bool {
        self.pace.is_some()
    }

    /// Admits a job behind `waiting` others, or returns the delay after which to retry. `is_idle`: a worker waits for
    /// jobs.
    pub fn admit(
        &mut self,
        now: Instant,
        waiting: usize,
        is_idle: bool,
        deadline: Option<Instant>,
    ) -> Result<(), Duration> {
        if is_idle {
            self.end_if_clear(now);
        }
        let Some(pace) = self.pace else { return Ok(()) };
        let turn = pace.job.saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX));
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now));
        // Half of the time left, because the rate may fall; but two batches may always wait, or the store would pause.
        let patience = (left / 2).min(WAIT_MAX).max(pace.batch * 2).min(left);
        if turn <= patience { Ok(()) } else { Err(turn.saturating_sub(patience).max(RETRY_AFTER_MIN)) }
    }

    /// Deadline that jobs taken now must exceed to be worth their work.
    pub fn due(&self, now: Instant) -> Instant {
        now + self.pace.map_or(Duration::ZERO, |pace| pace.batch)
    }

    fn end_if_clear(&mut self, now: Instant) {
        if self.left_at.is_some_and(|left_at| now.saturating_duration_since(left_at) >= INTERVAL) {
            *self = Self::default();
        }
    }
}
