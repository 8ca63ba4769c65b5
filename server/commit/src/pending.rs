//! Jobs with the callers that wait for them, and answers on their way. Must not know when an answer is true.

use std::time::Instant;

use tokio::sync::oneshot;

use crate::{
    dispatcher::{self, Home},
    failure::Failure,
    queue::Waiting,
};

pub(crate) type Answered<A> = Result<A, Failure>;

/// A job and its caller. If it is dropped without an answer, the caller is told that the outcome is unknown.
#[derive(Debug)]
pub struct Pending<J, A> {
    /// What the caller wants done.
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

    /// Whether the caller gave up, as at the end of its deadline. It is not charged for what has not begun.
    pub fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    pub(crate) fn refuse(self, failure: Failure) {
        // A caller that has gone away needs no answer.
        let _ = self.reply.send(Err(failure));
    }
}

/// The answers of a batch, sent together after it.
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

    /// Answers a job. What the answer says must be on disk.
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
