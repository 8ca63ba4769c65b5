//! Simulated overload: open-loop callers, a store that needs 20 ms for a batch of 7, and the queue between them. Must
//! not sleep.

use std::{
    cell::Cell,
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    answers::Failure,
    queue::{Queue, Taken, Waiting},
};

const SYNC: Duration = Duration::from_millis(20);
const BATCH: usize = 7;
/// Jobs per second that the store commits.
const CAPACITY: u32 = 350;
const DEADLINE: Duration = Duration::from_secs(1);

thread_local! {
    static NOW: Cell<Instant> = Cell::new(Instant::now());
}

/// A caller that leaves at its deadline.
struct Caller {
    asked_at: Instant,
    deadline: Option<Instant>,
}

impl Waiting for Caller {
    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn is_late(&self, due: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= due)
    }
}

#[derive(Debug, Default)]
struct Outcome {
    in_time: u32,
    /// Committed after the caller had left.
    in_vain: u32,
    refused: u32,
    /// Dropped after waiting.
    dropped: u32,
    wait_max: Duration,
}

/// A store and its queue.
struct Simulation {
    queue: Queue<Caller>,
    batch_max: usize,
    busy_until: Option<Instant>,
    at_work: VecDeque<Caller>,
}

impl Simulation {
    fn new(batch_max: usize) -> Self {
        let queue = Queue::new(16_384, |_| 0, || NOW.get());
        Self { queue, batch_max, busy_until: None, at_work: VecDeque::new() }
    }

    /// Commits a batch each [`SYNC`] until `end`.
    fn work(&mut self, end: Instant, outcome: &mut Outcome) {
        loop {
            if let Some(done_at) = self.busy_until {
                if done_at > end {
                    return;
                }
                NOW.set(done_at);
                self.busy_until = None;
                for Caller { asked_at, deadline } in self.at_work.drain(..) {
                    let gone = deadline.is_some_and(|deadline| deadline < done_at);
                    *(if gone { &mut outcome.in_vain } else { &mut outcome.in_time }) += 1;
                    outcome.wait_max = outcome.wait_max.max(done_at - asked_at);
                }
            }
            let mut late = Vec::new();
            let found = self.queue.take(&mut self.at_work, &mut late, self.batch_max, usize::MAX, Duration::ZERO);
            outcome.dropped += u32::try_from(late.len()).unwrap();
            if found != Taken::Jobs {
                return;
            }
            if !self.at_work.is_empty() {
                self.busy_until = Some(NOW.get() + SYNC);
            }
        }
    }

    /// Sends jobs at an even rate for `time`.
    fn load(&mut self, per_second: u32, time: Duration, patience: Option<Duration>) -> Outcome {
        let mut outcome = Outcome::default();
        let start = NOW.get();
        for asked in 0.. {
            let at = start + Duration::from_secs(1) * asked / per_second;
            if at >= start + time {
                break;
            }
            self.work(at, &mut outcome);
            NOW.set(at);
            let deadline = patience.map(|patience| at + patience);
            match self.queue.push(Caller { asked_at: at, deadline }) {
                Ok(()) => {}
                Err(Failure::Overloaded { retry_after }) => {
                    assert!(retry_after >= Duration::from_millis(100) && retry_after < Duration::from_mins(1));
                    outcome.refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        self.work(start + time, &mut outcome);
        NOW.set(start + time);
        outcome
    }
}

#[test]
fn at_ten_times_its_capacity_the_store_sells_what_it_can_and_nothing_to_callers_that_have_gone() {
    let mut store = Simulation::new(BATCH);
    let seconds = 20;
    let outcome = store.load(CAPACITY * 10, Duration::from_secs(seconds.into()), Some(DEADLINE));
    assert!(outcome.in_time * 10 >= CAPACITY * seconds * 9, "{outcome:?}");
    assert_eq!(outcome.in_vain, 0, "{outcome:?}");
    assert!(outcome.refused > CAPACITY * seconds * 8, "{outcome:?}");
    assert!(outcome.dropped < CAPACITY, "a refusal comes before the wait: {outcome:?}");
}

#[test]
fn a_second_after_the_overload_all_is_as_before() {
    for patience in [Some(DEADLINE), Some(Duration::from_millis(200)), Some(Duration::from_millis(100))] {
        let mut store = Simulation::new(BATCH);
        store.load(CAPACITY * 10, Duration::from_secs(5), patience);
        store.load(CAPACITY / 2, Duration::from_secs(1), patience);
        let after = store.load(CAPACITY / 2, Duration::from_secs(2), patience);
        assert_eq!((after.refused, after.dropped, after.in_vain), (0, 0, 0), "{patience:?}: {after:?}");
        assert!(after.wait_max <= SYNC * 2, "{patience:?}: {after:?}");
    }
}

#[test]
fn callers_without_a_deadline_wait_two_seconds_at_most_once_the_queue_stands() {
    let mut store = Simulation::new(BATCH);
    store.load(CAPACITY * 2, Duration::from_secs(10), None);
    let outcome = store.load(CAPACITY * 10, Duration::from_secs(10), None);
    assert!(outcome.in_time >= CAPACITY * 10 - 7 && outcome.dropped == 0, "{outcome:?}");
    assert!(outcome.wait_max < Duration::from_millis(2200), "{outcome:?}");
}

#[test]
fn a_burst_as_long_as_the_queue_is_taken_whole_if_the_store_commits_it_in_time() {
    let mut store = Simulation::new(1024);
    // Small batches before the burst do not reveal the store's capacity.
    store.load(40, Duration::from_secs(2), Some(DEADLINE));
    for _ in 0..3 {
        let mut burst = store.load(16_384 * 1000, Duration::from_millis(1), Some(DEADLINE));
        store.work(NOW.get() + DEADLINE, &mut burst);
        assert_eq!((burst.in_time, burst.refused, burst.dropped, burst.in_vain), (16_384, 0, 0, 0));
    }
}

#[test]
fn nothing_is_refused_below_capacity() {
    for load in [1, 10, CAPACITY / 2, CAPACITY - 5] {
        let outcome = Simulation::new(BATCH).load(load, Duration::from_secs(20), Some(Duration::from_millis(100)));
        assert_eq!((outcome.refused, outcome.dropped, outcome.in_vain), (0, 0, 0), "{load}: {outcome:?}");
    }
}

#[test]
fn a_stall_of_the_disk_is_forgotten() {
    let mut store = Simulation::new(BATCH);
    store.load(CAPACITY * 3, Duration::from_secs(2), Some(DEADLINE));
    store.busy_until = store.busy_until.map(|until| until + Duration::from_secs(5));
    store.load(CAPACITY * 3, Duration::from_secs(7), Some(DEADLINE));
    let outcome = store.load(CAPACITY * 3, Duration::from_secs(5), Some(DEADLINE));
    assert!(outcome.in_time * 10 >= CAPACITY * 5 * 9 && outcome.in_vain == 0, "{outcome:?}");
}
