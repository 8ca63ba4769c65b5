//! Jobs with their waiting callers, and answers in transit.

use std::time::Instant;

use tokio::sync::oneshot;

use crate::{
    dispatcher::{self, Home},
    failure::Failure,
    queue::Waiting,
};

pub(crate) type Answered<A> = Result<A, Failure>;

/// A job and its caller. Dropped without an answer, it reports an unknown outcome to the caller.
#[derive(Debug)]
pub struct Pending<J, A> {
    /// The job to do.
    pub job: J,
    reply: oneshot::Sender<Answered<A>>,
    home: Home,
    deadline: Option<Instant>,
}

impl<J, A> Waiting for Pending<J, A> {
    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn is_late(&self, due: Instant) -> bool {
        self.is_abandoned() || self.deadline.is_some_and(|deadline| deadline <= due)
    }
}

impl<J, A> Pending<J, A> {
    pub(crate) fn new(job: J, deadline: Option<Instant>) -> (Self, oneshot::Receiver<Answered<A>>) {
        let (reply, answer) = oneshot::channel();
        (Self { job, reply, home: dispatcher::here(), deadline }, answer)
    }

    /// True if the caller gave up, for example at its deadline; it is not charged for a job that has not begun.
    pub fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    pub(crate) fn refuse(self, failure: Failure) {
        // A caller that has gone away needs no answer.
        let _ = self.reply.send(Err(failure));
    }
}

/// Answers of a batch, sent together after it.
#[derive(Debug)]
pub struct Answers<A> {
    by_home: Vec<(Home, Vec<Ready<A>>)>,
}

#[derive(Debug)]
struct Ready<A> {
    reply: oneshot::Sender<Answered<A>>,
    answer: A,
}

impl<A: Send + 'static> Answers<A> {
    pub(crate) fn new() -> Self {
        Self { by_home: Vec::new() }
    }

    /// Answers a job. Everything the answer reports must be on disk.
    pub fn add<J>(&mut self, pending: Pending<J, A>, answer: A) {
        let Pending { reply, home, .. } = pending;
        let ready = Ready { reply, answer };
        // There are about as many homes as cores.
        match self.by_home.iter_mut().find(|batch| batch.0 == home) {
            Some((_, batch)) => batch.push(ready),
            None => self.by_home.push((home, vec![ready])),
        }
    }

    pub(crate) fn send(&mut self) {
        for (home, batch) in self.by_home.drain(..) {
            dispatcher::dispatch(home, move || {
                for Ready { reply, answer } in batch {
                    let _ = reply.send(Ok(answer));
                }
            });
        }
    }
}
