//! A group's guarantees, checked with a scripted store: no acknowledged job is lost, no caller gets a definite answer
//! after a failed commit, and no job is accepted until the store has been read back.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use commit::{Batch, Batches, Failure, Group, GroupLimits, Worker};
use tokio::{runtime::Runtime, task::JoinHandle};

const LONG: Duration = Duration::from_secs(20);

/// The store's next operation; it waits for a [`Step`].
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Open,
    ReadBack,
    Commit(Vec<u32>),
}

enum Step {
    Succeed,
    /// A failed commit may have reached the disk.
    Fail {
        on_disk: bool,
    },
    /// Adds the queued jobs to the batch, returns the last ones, and waits for another step.
    Add {
        put_back: usize,
    },
    Panic,
}

struct Simulated {
    disk: Arc<Mutex<Vec<u32>>>,
    events: Sender<Event>,
    steps: Receiver<Step>,
    /// Rounds without a batch that a job begins.
    rounds_left: u32,
}

impl Simulated {
    fn next_step(&self, event: Event) -> Step {
        self.events.send(event).expect("the test listens");
        self.steps.recv().unwrap_or(Step::Succeed)
    }

    fn step(&self, event: Event) -> Result<bool, bool> {
        self.next_step(event).done()
    }
}

impl Step {
    /// Ok or Err, each with whether it reached the disk.
    fn done(self) -> Result<bool, bool> {
        match self {
            Self::Succeed => Ok(true),
            Self::Fail { on_disk } => Err(on_disk),
            Self::Add { .. } | Self::Panic => panic!("as scripted"),
        }
    }
}

fn jobs_of(batch: &Batch<Simulated>) -> Vec<u32> {
    batch.iter().map(|pending| pending.job).collect()
}

impl Worker for Simulated {
    type Job = u32;
    type Answer = u32;
    type Error = ();

    fn run(&mut self, batches: &mut Batches<'_, Self>) -> Result<(), ()> {
        self.step(Event::Open).map_err(drop)?;
        batches.recover(|| self.step(Event::ReadBack).map(drop).map_err(drop))?;
        while let Some(batch) = batches.next(self.rounds_left > 0) {
            self.rounds_left = self.rounds_left.saturating_sub(1);
            if !batch.is_empty() {
                self.commit(batch, batches)?;
            }
        }
        Ok(())
    }

    fn failed(&mut self, (): &(), _: u32) {}

    fn bytes(job: &u32) -> usize {
        usize::try_from(*job).unwrap_or(usize::MAX)
    }
}

impl Simulated {
    fn commit(&mut self, mut batch: Batch<Self>, batches: &mut Batches<'_, Self>) -> Result<(), ()> {
        let mut step = self.next_step(Event::Commit(jobs_of(&batch)));
        if let Step::Add { put_back } = step {
            batches.extend(&mut batch);
            batches.put_back(batch.split_off(batch.len() - put_back));
            step = self.next_step(Event::Commit(jobs_of(&batch)));
        }
        let done = step.done();
        let (Ok(on_disk) | Err(on_disk)) = done;
        if on_disk {
            self.disk.lock().unwrap().extend(jobs_of(&batch));
        }
        done.map_err(drop)?;
        for pending in batch {
            let job = pending.job;
            batches.answer(pending, job);
            self.rounds_left = job / 1000;
        }
        Ok(())
    }
}

/// A group over simulated stores, with their controls.
struct Stage {
    group: Arc<Group<Simulated>>,
    disk: Arc<Mutex<Vec<u32>>>,
    events: Receiver<Event>,
    steps: Vec<Sender<Step>>,
    runtime: Runtime,
}

impl Stage {
    /// A group with one worker, whose store is open.
    fn new(limits: GroupLimits) -> Self {
        let stage = Self::with_workers(limits, 1);
        stage.expect(&Event::Open, Step::Succeed);
        stage
    }

    fn with_workers(limits: GroupLimits, workers: usize) -> Self {
        let (disk, (events_in, events)) = (Arc::<Mutex<Vec<u32>>>::default(), channel());
        let (mut steps, mut stores) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (steps_in, steps_out) = channel();
            steps.push(steps_in);
            let (disk, events) = (Arc::clone(&disk), events_in.clone());
            stores.push(Simulated { disk, events, steps: steps_out, rounds_left: 0 });
        }
        let group = Arc::new(Group::start("simulated", limits, stores).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        Self { group, disk, events, steps, runtime }
    }

    fn next(&self) -> Event {
        self.events.recv_timeout(LONG).expect("the store is asked for something")
    }

    fn expect(&self, event: &Event, step: Step) {
        assert_eq!(self.next(), *event);
        self.steps[0].send(step).unwrap();
    }

    fn send(&self, job: u32) -> JoinHandle<Result<u32, Failure>> {
        let group = Arc::clone(&self.group);
        self.runtime.spawn(async move { group.commit(job).await })
    }

    /// Queues jobs in order; all have to wait.
    fn queue(&self, jobs: &[u32]) -> Vec<JoinHandle<Result<u32, Failure>>> {
        let mut waiting = Vec::new();
        for job in jobs {
            waiting.push(self.send(*job));
            while self.group.queued() < waiting.len() {
                std::thread::yield_now();
            }
        }
        waiting
    }

    fn answers(&self, waiting: Vec<JoinHandle<Result<u32, Failure>>>) -> Vec<Result<u32, Failure>> {
        waiting.into_iter().map(|call| self.runtime.block_on(call).unwrap()).collect()
    }

    fn healthy(&self) -> bool {
        *self.group.healthy().borrow()
    }
}

#[test]
fn jobs_that_wait_are_committed_together_and_answered_afterwards() {
    let stage = Stage::new(GroupLimits::default());
    let first = stage.send(1);
    assert_eq!(stage.next(), Event::Commit(vec![1]));
    let waiting = stage.queue(&[2, 3, 4]);
    assert!(!first.is_finished(), "no answer goes before the commit");
    stage.steps[0].send(Step::Succeed).unwrap();
    assert_eq!(stage.answers(vec![first]), [Ok(1)]);
    stage.expect(&Event::Commit(vec![2, 3, 4]), Step::Succeed);
    assert_eq!(stage.answers(waiting), [Ok(2), Ok(3), Ok(4)]);
}

#[test]
fn a_batch_under_way_takes_more_within_the_limits_and_what_it_puts_back_comes_next() {
    let stage = Stage::new(GroupLimits { batch: 4, batch_bytes: 100, ..GroupLimits::default() });
    let first = stage.send(1);
    assert_eq!(stage.next(), Event::Commit(vec![1]));
    let mut waiting = stage.queue(&[2, 3, 4, 5]);
    stage.steps[0].send(Step::Add { put_back: 2 }).unwrap();
    assert_eq!(stage.next(), Event::Commit(vec![1, 2]), "four, less the last two");
    assert_eq!(stage.group.queued(), 3);
    stage.steps[0].send(Step::Succeed).unwrap();
    stage.expect(&Event::Commit(vec![3, 4, 5]), Step::Add { put_back: 0 });
    assert_eq!(stage.next(), Event::Commit(vec![3, 4, 5]), "no more waited");
    waiting.extend(stage.queue(&[80, 20, 30]));
    stage.steps[0].send(Step::Succeed).unwrap();
    stage.expect(&Event::Commit(vec![80, 20]), Step::Add { put_back: 0 });
    stage.expect(&Event::Commit(vec![80, 20]), Step::Succeed);
    stage.expect(&Event::Commit(vec![30]), Step::Succeed);
    assert_eq!(stage.answers(vec![first]), [Ok(1)]);
    assert!(stage.answers(waiting).iter().all(Result::is_ok));
}

#[test]
fn what_is_put_back_is_refused_if_the_commit_fails() {
    let stage = Stage::new(GroupLimits::default());
    let first = stage.send(1);
    assert_eq!(stage.next(), Event::Commit(vec![1]));
    let waiting = stage.queue(&[2, 3]);
    stage.steps[0].send(Step::Add { put_back: 1 }).unwrap();
    stage.expect(&Event::Commit(vec![1, 2]), Step::Fail { on_disk: true });
    assert_eq!(stage.answers(vec![first]), [Err(Failure::OutcomeUnknown)]);
    assert_eq!(stage.answers(waiting), [Err(Failure::OutcomeUnknown), Err(Failure::Recovering)]);
}

#[test]
fn after_a_failed_commit_its_callers_know_nothing_and_the_queued_that_nothing_was_done() {
    let stage = Stage::new(GroupLimits::default());
    let first = stage.send(1);
    assert_eq!(stage.next(), Event::Commit(vec![1]));
    let queued = stage.queue(&[2, 3]);
    stage.steps[0].send(Step::Fail { on_disk: true }).unwrap();
    assert_eq!(stage.answers(vec![first]), [Err(Failure::OutcomeUnknown)]);
    assert_eq!(stage.answers(queued), [Err(Failure::Recovering), Err(Failure::Recovering)]);
    assert_eq!(*stage.disk.lock().unwrap(), [1]);
}

#[test]
fn nothing_is_taken_on_until_the_store_was_read_back() {
    let stage = Stage::new(GroupLimits::default());
    let first = stage.send(1);
    stage.expect(&Event::Commit(vec![1]), Step::Fail { on_disk: false });
    assert_eq!(stage.answers(vec![first]), [Err(Failure::OutcomeUnknown)]);
    // Opening fails, then reading back, and then all is well.
    stage.expect(&Event::Open, Step::Fail { on_disk: false });
    stage.expect(&Event::Open, Step::Succeed);
    stage.expect(&Event::ReadBack, Step::Fail { on_disk: false });
    assert_eq!(stage.next(), Event::Open);
    assert!(!stage.healthy());
    assert_eq!(stage.answers(vec![stage.send(2)]), [Err(Failure::Recovering)]);
    stage.steps[0].send(Step::Succeed).unwrap();
    assert_eq!(stage.next(), Event::ReadBack);
    assert!(!stage.healthy());
    assert_eq!(stage.answers(vec![stage.send(3)]), [Err(Failure::Recovering)]);
    stage.steps[0].send(Step::Succeed).unwrap();
    let mut healthy = stage.group.healthy();
    assert!(stage.runtime.block_on(healthy.wait_for(|healthy| *healthy)).is_ok());
    let fourth = stage.send(4);
    stage.expect(&Event::Commit(vec![4]), Step::Succeed);
    assert_eq!(stage.answers(vec![fourth]), [Ok(4)]);
    assert_eq!(*stage.disk.lock().unwrap(), [4]);
}

#[test]
fn no_acknowledged_job_is_lost_and_no_refused_one_done_however_often_commits_fail() {
    let stage = Stage::new(GroupLimits { queued: 40, batch: 7, ..GroupLimits::default() });
    let mut waiting = Vec::new();
    let mut failures = 0;
    for round in 0..200_u32 {
        waiting.extend((0..5).map(|place| stage.send(round * 5 + place)));
        while let Ok(event) = stage.events.try_recv() {
            let fails = matches!(event, Event::Commit(_)) && round % 40 == 17;
            failures += u32::from(fails);
            let on_disk = round % 3 == 0;
            stage.steps[0].send(if fails { Step::Fail { on_disk } } else { Step::Succeed }).unwrap();
        }
        std::thread::yield_now();
    }
    let Stage { group, disk, events, steps, runtime } = stage;
    drop(steps);
    let (mut done, mut not_done) = (HashSet::new(), HashSet::new());
    for (job, call) in (0..).zip(waiting) {
        match runtime.block_on(call).unwrap() {
            Ok(answer) => assert!(answer == job && done.insert(job)),
            Err(Failure::OutcomeUnknown) => {}
            Err(
                Failure::Full | Failure::Overloaded { .. } | Failure::Late | Failure::Recovering | Failure::Closing,
            ) => {
                assert!(not_done.insert(job));
            }
        }
    }
    assert!(group.close(LONG));
    drop(events);
    let disk = disk.lock().unwrap();
    let on_disk: HashSet<u32> = disk.iter().copied().collect();
    assert_eq!(on_disk.len(), disk.len(), "no job is done twice");
    assert!(done.is_subset(&on_disk) && not_done.is_disjoint(&on_disk), "after {failures} failures");
    assert!(!done.is_empty());
}

#[test]
fn a_full_group_refuses_and_a_closed_one_too() {
    let stage = Stage::new(GroupLimits { queued: 2, ..GroupLimits::default() });
    let first = stage.send(1);
    assert_eq!(stage.next(), Event::Commit(vec![1]));
    let waiting = stage.queue(&[2, 3]);
    assert_eq!(stage.answers(vec![stage.send(4)]), [Err(Failure::Full)]);
    assert!(!stage.group.close(Duration::ZERO), "the store is at work");
    assert_eq!(stage.answers(vec![stage.send(5)]), [Err(Failure::Closing)]);
    stage.steps[0].send(Step::Succeed).unwrap();
    stage.expect(&Event::Commit(vec![2, 3]), Step::Succeed);
    assert!(stage.group.close(LONG), "what was queued is committed");
    assert_eq!(stage.answers(vec![first]), [Ok(1)]);
    assert_eq!(stage.answers(waiting), [Ok(2), Ok(3)]);
}

#[test]
fn a_batch_ends_at_its_jobs_and_once_it_has_its_bytes() {
    let stage = Stage::new(GroupLimits { batch: 3, batch_bytes: 8, ..GroupLimits::default() });
    let mut waiting = vec![stage.send(1)];
    assert_eq!(stage.next(), Event::Commit(vec![1]));
    waiting.extend(stage.queue(&[1, 1, 1, 1, 4, 4, 99, 2]));
    stage.steps[0].send(Step::Succeed).unwrap();
    for batch in [vec![1, 1, 1], vec![1, 4, 4], vec![99], vec![2]] {
        stage.expect(&Event::Commit(batch), Step::Succeed);
    }
    assert!(stage.answers(waiting).iter().all(Result::is_ok));
}

#[test]
fn closing_does_not_wait_for_a_store_that_cannot_be_opened() {
    let stage = Stage::with_workers(GroupLimits::default(), 1);
    stage.expect(&Event::Open, Step::Fail { on_disk: false });
    assert!(stage.group.close(LONG));
}

#[test]
fn closing_waits_for_what_the_store_has_begun() {
    let stage = Stage::new(GroupLimits::default());
    let first = stage.send(3000);
    assert_eq!(stage.next(), Event::Commit(vec![3000]));
    assert!(!stage.group.close(Duration::ZERO));
    stage.steps[0].send(Step::Succeed).unwrap();
    assert!(stage.group.close(LONG));
    assert_eq!(stage.answers(vec![first]), [Ok(3000)]);
}

#[test]
fn a_caller_that_gave_up_is_not_charged() {
    let stage = Stage::new(GroupLimits::default());
    let first = stage.send(1);
    assert_eq!(stage.next(), Event::Commit(vec![1]));
    let mut waiting = stage.queue(&[2, 3]);
    let abandoned = waiting.remove(0);
    abandoned.abort();
    assert!(stage.runtime.block_on(abandoned).unwrap_err().is_cancelled());
    stage.steps[0].send(Step::Succeed).unwrap();
    stage.expect(&Event::Commit(vec![3]), Step::Succeed);
    assert_eq!(stage.answers(waiting), [Ok(3)]);
    assert_eq!(stage.answers(vec![first]), [Ok(1)]);
}

#[test]
fn a_worker_that_panics_leaves_no_caller_waiting() {
    let stage = Stage::new(GroupLimits::default());
    let first = stage.send(1);
    assert_eq!(stage.next(), Event::Commit(vec![1]));
    let queued = stage.queue(&[2]);
    stage.steps[0].send(Step::Panic).unwrap();
    assert_eq!(stage.answers(vec![first]), [Err(Failure::OutcomeUnknown)]);
    assert_eq!(stage.answers(queued), [Err(Failure::Recovering)]);
    assert_eq!(stage.answers(vec![stage.send(3)]), [Err(Failure::Recovering)]);
    assert!(!stage.healthy());
    assert!(stage.group.close(LONG));
}

#[test]
fn several_workers_take_a_job_each_and_one_failure_stops_them_all() {
    let stage = Stage::with_workers(GroupLimits { batch: 1, ..GroupLimits::default() }, 2);
    for (steps, event) in stage.steps.iter().zip(stage.events.iter()) {
        assert_eq!(event, Event::Open);
        steps.send(Step::Succeed).unwrap();
    }
    let waiting = vec![stage.send(1), stage.send(2)];
    let both: HashSet<u32> = [stage.next(), stage.next()]
        .into_iter()
        .flat_map(|event| if let Event::Commit(jobs) = event { jobs } else { Vec::new() })
        .collect();
    assert_eq!(both, HashSet::from([1, 2]), "both are at work at once");
    stage.steps[0].send(Step::Fail { on_disk: false }).unwrap();
    stage.runtime.block_on(stage.group.healthy().wait_for(|healthy| !healthy)).unwrap();
    assert_eq!(stage.answers(vec![stage.send(3)]), [Err(Failure::Recovering)]);
    stage.steps[1].send(Step::Succeed).unwrap();
    let mut answers = stage.answers(waiting);
    answers.sort_by_key(Result::is_err);
    assert!(matches!(answers[..], [Ok(_), Err(Failure::OutcomeUnknown)]), "{answers:?}");
}

#[test]
fn a_group_is_healthy_when_every_worker_has_read_back() {
    let stage = Stage::with_workers(GroupLimits { batch: 1, ..GroupLimits::default() }, 2);
    for steps in &stage.steps {
        assert_eq!(stage.next(), Event::Open);
        steps.send(Step::Fail { on_disk: false }).unwrap();
    }
    assert_eq!([stage.next(), stage.next()], [Event::Open, Event::Open], "both try again");
    for _ in 0..2 {
        stage.steps[0].send(Step::Succeed).unwrap();
    }
    assert_eq!(stage.next(), Event::ReadBack);
    assert_eq!(stage.answers(vec![stage.send(1)]), [Err(Failure::Recovering)]);
    assert!(!stage.healthy());
    for _ in 0..2 {
        stage.steps[1].send(Step::Succeed).unwrap();
    }
    assert_eq!(stage.next(), Event::ReadBack);
    stage.runtime.block_on(stage.group.healthy().wait_for(|healthy| *healthy)).unwrap();
}
