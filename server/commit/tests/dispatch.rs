//! Delivery of answers: the callers of a runtime are woken by a task on its own thread, all of a batch at once.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    task::{Context, Poll, Wake},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use commit::{Batch, Batches, Failure, Group, GroupLimits, OnTaken, Worker, measure_waits, waited};

/// Answers a batch once all its expected jobs have arrived.
struct Gathering {
    jobs: usize,
    waiting: Batch<Gathering>,
    answered: Sender<ThreadId>,
}

impl Worker for Gathering {
    type Job = ();
    type Answer = ();
    type Error = Infallible;

    fn run(&mut self, batches: &mut Batches<'_, Self>) -> Result<(), Infallible> {
        while let Some(batch) = batches.next(false) {
            self.waiting.extend(batch);
            if self.waiting.len() == self.jobs {
                self.waiting.drain(..).for_each(|pending| batches.answer(pending, ()));
                batches.send_answers();
                let _ = self.answered.send(thread::current().id());
            }
        }
        Ok(())
    }

    fn failed(&mut self, _: &Infallible, _: u32) {}
}

/// A waker that reports the thread it runs on.
struct Reporting(Sender<ThreadId>);

impl Wake for Reporting {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(thread::current().id());
    }
}

#[test]
fn the_callers_of_a_runtime_are_woken_together_and_on_its_thread() {
    const JOBS: usize = 3;
    let (answered, answers) = channel();
    let group =
        Group::start("gathering", GroupLimits::default(), [Gathering { jobs: JOBS, waiting: Vec::new(), answered }]);
    let group = group.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (reporting, woken) = channel();
    let waker = Arc::new(Reporting(reporting)).into();
    let mut cx = Context::from_waker(&waker);
    runtime.block_on(async {
        let mut calls: Vec<_> = (0..JOBS).map(|_| Box::pin(group.commit(()))).collect();
        assert!(calls.iter_mut().all(|call| call.as_mut().poll(&mut cx).is_pending()));
        answers.recv_timeout(Duration::from_secs(20)).expect("the batch is answered");
        assert_eq!(woken.try_iter().count(), 0, "the runtime's thread has not run its dispatcher yet");
        tokio::task::yield_now().await;
        assert_eq!(woken.try_iter().collect::<Vec<_>>(), [thread::current().id(); JOBS]);
        assert!(calls.iter_mut().all(|call| call.as_mut().poll(&mut cx) == Poll::Ready(Ok(()))));
    });
}

#[test]
fn a_caller_outside_any_runtime_is_woken_by_the_worker() {
    let (answered, answers) = channel();
    let group =
        Group::start("gathering", GroupLimits::default(), [Gathering { jobs: 1, waiting: Vec::new(), answered }]);
    let group = group.unwrap();
    let (reporting, woken) = channel();
    let waker = Arc::new(Reporting(reporting)).into();
    let mut call = pin!(group.commit(()));
    let polled = call.as_mut().poll(&mut Context::from_waker(&waker));
    if polled.is_pending() {
        let worker = answers.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(woken.recv_timeout(Duration::from_secs(20)), Ok(worker));
    }
}

#[test]
fn the_worker_wakes_callers_whose_runtime_has_ended() {
    let (answered, answers) = channel();
    let group =
        Group::start("gathering", GroupLimits::default(), [Gathering { jobs: 2, waiting: Vec::new(), answered }]);
    let group = group.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (reporting, woken) = channel();
    let waker = Arc::new(Reporting(reporting)).into();
    let mut cx = Context::from_waker(&waker);
    let mut first = Box::pin(group.commit(()));
    assert!(runtime.block_on(async { first.as_mut().poll(&mut cx) }).is_pending());
    drop(runtime);
    let mut second = Box::pin(group.commit(()));
    assert!(second.as_mut().poll(&mut cx).is_pending() || answers.try_recv().is_ok());
    let worker = answers.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(woken.recv_timeout(Duration::from_secs(20)), Ok(worker));
    while first.as_mut().poll(&mut cx).is_pending() {
        thread::yield_now();
    }
}

#[test]
fn a_wait_is_measured_from_the_submission_to_the_answer_or_the_drop_if_it_is_wanted() {
    let (answered, answers) = channel();
    let group =
        Group::start("gathering", GroupLimits::default(), [Gathering { jobs: 2, waiting: Vec::new(), answered }]);
    let group = group.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    runtime.block_on(async {
        let unwanted = group.commit(());
        measure_waits();
        let (before, mut wanted, begun_at) = (Instant::now(), Box::pin(group.commit(())), Instant::now());
        assert_eq!(waited(), Duration::ZERO);
        answers.recv_timeout(Duration::from_secs(20)).expect("the batch is answered");
        let least = begun_at.elapsed();
        tokio::task::yield_now().await;
        measure_waits();
        unwanted.await.unwrap();
        assert!(wanted.as_mut().poll(&mut cx).is_ready());
        assert!((least..=before.elapsed()).contains(&waited()));
        measure_waits();
        let dropped = group.commit(());
        let begun_at = Instant::now();
        while begun_at.elapsed().is_zero() {}
        drop(dropped);
        assert!(waited() > Duration::ZERO);
        drop(group.commit(()));
        assert_eq!(waited(), Duration::ZERO);
    });
}

/// Reports times in the queue; each job is late.
struct Timing(Sender<Duration>);

impl Worker for Timing {
    type Job = ();
    type Answer = ();
    type Error = Infallible;

    fn run(&mut self, batches: &mut Batches<'_, Self>) -> Result<(), Infallible> {
        while batches.next(false).is_some() {}
        Ok(())
    }

    fn failed(&mut self, _: &Infallible, _: u32) {}

    fn deadline((): &()) -> Option<Instant> {
        Some(Instant::now())
    }

    fn on_taken(&self) -> OnTaken {
        let times = self.0.clone();
        Box::new(move |queued| times.send(queued).unwrap())
    }
}

#[test]
fn one_in_16_jobs_is_timed_in_the_queue_late_ones_as_well() {
    let (reported, times) = channel();
    let group = Group::start("timing", GroupLimits::default(), [Timing(reported)]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for number in 1..=33_usize {
        assert_eq!(runtime.block_on(group.commit(())), Err(Failure::Late));
        assert_eq!(times.try_iter().count(), usize::from(number % 16 == 1));
    }
}
