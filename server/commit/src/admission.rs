//! Bounds a queue by time instead of length: what waits is measured against the rate at which jobs last left a backlog.
//! Must not know clocks, jobs or stores.
//!
//! A length cannot bound waiting: 16,384 jobs are a third of a second for a store that commits 50,000 a second, and three
//! quarters of a minute for one that commits 350. So a backlog is found as in `CoDel` (Nichols and Jacobson, 2012): a
//! queue that is not emptied for [`INTERVAL`] stands, whereas a burst goes. While it stands, the store works as fast as it
//! can, and so its rate is its capacity; a rate measured at low load is only that load. From then on a job is refused
//! before it waits if its turn would come too late at that rate.
//!
//! `CoDel` itself drops jobs from the head after they have waited. A refusal at the door costs the caller no time, and a
//! caller that knows the delay can come back. What `CoDel` drops from the head is dropped here as well: jobs whose caller
//! has gone, and in a backlog those that could only be committed after their deadline. A gradient limiter would need round
//! trips at low load to compare with, and would mistake a group commit, whose time grows with its batch, for congestion.
//!
//! One batch that lasts longer than the deadlines of its jobs is not prevented: bound the batch.

use std::time::{Duration, Instant};

/// How long a queue must stand before jobs are refused, and how long it must not before all are taken again.
const INTERVAL: Duration = Duration::from_millis(100);

/// The least pause that a refused caller is asked for.
pub const RETRY_AFTER_MIN: Duration = INTERVAL;

/// The longest wait in a backlog, for jobs without a deadline or with a distant one.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// What a store did while its queue stood.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Between two jobs.
    job: Duration,
    /// Between two batches.
    batch: Duration,
}

/// Takes that left jobs behind.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    jobs: u32,
    batches: u32,
}

/// Watches what is taken from a queue, and says whether another job may wait in it.
#[derive(Debug, Default)]
pub struct Admission {
    window: Option<Window>,
    /// Known while the queue stands.
    pace: Option<Pace>,
    /// When a take last left jobs behind.
    left_at: Option<Instant>,
}

impl Admission {
    /// Notes that `jobs` were taken to be worked on and that `left` still wait.
    pub fn taken(&mut self, now: Instant, jobs: usize, left: usize) {
        self.note(now, 1, jobs, left);
    }

    /// Notes that `jobs` were added to those that were taken last, and that `left` still wait.
    pub(crate) fn added(&mut self, now: Instant, jobs: usize, left: usize) {
        self.note(now, 0, jobs, left);
    }

    fn note(&mut self, now: Instant, batches: u32, jobs: usize, left: usize) {
        if left == 0 {
            // The time until the next take may be idle.
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
        // Half of the past, so that one slow commit does not count for all.
        self.pace = Some(self.pace.map_or(measured, |pace| Pace {
            job: (pace.job + measured.job) / 2,
            batch: (pace.batch + measured.batch) / 2,
        }));
        self.window = Some(begun);
    }

    /// Whether a queue stands, so that [`Admission::admit`] can refuse a job.
    pub fn is_standing(&self) -> bool {
        self.pace.is_some()
    }

    /// Whether a job may wait behind `waiting` others until its turn. If not, the time after which another try is worth it.
    /// `is_idle` says that a worker waits for jobs.
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
        // Half of what is left, because the rate may fall; but two batches may always wait, or the store would pause.
        let patience = (left / 2).min(WAIT_MAX).max(pace.batch * 2).min(left);
        if turn <= patience { Ok(()) } else { Err(turn.saturating_sub(patience).max(RETRY_AFTER_MIN)) }
    }

    /// Jobs taken now are worth their work only if their deadline is later.
    pub fn due(&self, now: Instant) -> Instant {
        now + self.pace.map_or(Duration::ZERO, |pace| pace.batch)
    }

    fn end_if_clear(&mut self, now: Instant) {
        if self.left_at.is_some_and(|left_at| now.saturating_duration_since(left_at) >= INTERVAL) {
            *self = Self::default();
        }
    }
}
