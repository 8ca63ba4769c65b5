//! Jobs with their waiting callers, and the delivery of answers. The answers of a batch go to each runtime that awaits
//! some as one message, whose dispatcher task then wakes the callers from inside. If the worker woke each caller, each
//! would cost a system call, and on a shared core a thread switch.

use std::{
    cell::Cell,
    sync::{PoisonError, RwLock},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Handle, Id},
    sync::{mpsc, oneshot},
};

/// Failure of a job, returned instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The queue is full; the job was not run.
    #[error("the queue is full: nothing was done")]
    Full,
    /// Overload: the job would be committed after its deadline or wait too long; it was not run.
    #[error("more jobs come than the store commits: nothing was done, try again in {retry_after:?}")]
    Overloaded {
        /// Delay after which to retry.
        retry_after: Duration,
    },
    /// The deadline passed before work on the job began; the job was not run.
    #[error("the deadline passed before the job was begun: nothing was done")]
    Late,
    /// The store failed and has not been read back yet; the job was not run.
    #[error("the store is being read back after a failure: nothing was done")]
    Recovering,
    /// The group is closing; the job was not run.
    #[error("the store is closing: nothing was done")]
    Closing,
    /// The store failed during the commit; reading it back shows whether the job was done.
    #[error("the store failed while it committed: the outcome is unknown")]
    OutcomeUnknown,
}

pub(crate) type Answered<A> = Result<A, Failure>;

/// A job and its caller. Dropped without an answer, it reports an unknown outcome to the caller.
#[derive(Debug)]
pub struct Pending<J, A> {
    /// The job to do.
    pub job: J,
    reply: oneshot::Sender<Answered<A>>,
    home: Home,
    deadline: Option<Instant>,
    /// Time of its submission, if its time in the queue is wanted, until [`Pending::queued`].
    queued_at: Option<Instant>,
}

impl<J, A> Pending<J, A> {
    pub(crate) fn new(job: J, deadline: Option<Instant>) -> (Self, oneshot::Receiver<Answered<A>>) {
        let (reply, answer) = oneshot::channel();
        (Self { job, reply, home: home(), deadline, queued_at: None }, answer)
    }

    /// Time when its caller gives up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(crate) fn set_queued_at(&mut self, now: Instant) {
        self.queued_at = Some(now);
    }

    /// Time in the queue, if it is wanted; once, as a job may be put back.
    pub(crate) fn queued(&mut self) -> Option<Duration> {
        self.queued_at.take().map(|queued_at| queued_at.elapsed())
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
pub(crate) struct Answers<A> {
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

    pub(crate) fn add<J>(&mut self, pending: Pending<J, A>, answer: A) {
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
            dispatch(home, move || {
                for Ready { reply, answer } in batch {
                    let _ = reply.send(Ok(answer));
                }
            });
        }
    }
}

/// Index of a caller's dispatcher; `None` for a caller outside any runtime, which the worker wakes.
///
/// An index that another runtime has since taken over is harmless: its dispatcher wakes the caller as well.
type Home = Option<usize>;

type Delivery = Box<dyn FnOnce() + Send>;

/// Dispatchers of all runtimes. The channels are unbounded, but hold at most one answer per waiting caller. Shared by
/// the whole process, as runtimes are.
static DISPATCHERS: RwLock<Vec<(Id, mpsc::UnboundedSender<Delivery>)>> = RwLock::new(Vec::new());

thread_local! {
    static HERE: Cell<Option<(Id, usize)>> = const { Cell::new(None) };
}

/// The dispatcher of this thread's runtime, started on first use.
fn home() -> Home {
    let runtime = Handle::try_current().ok()?;
    if let Some((id, index)) = HERE.get()
        && id == runtime.id()
    {
        return Some(index);
    }
    let index = index_of(&runtime);
    HERE.set(Some((runtime.id(), index)));
    Some(index)
}

fn index_of(runtime: &Handle) -> usize {
    let mut dispatchers = DISPATCHERS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(index) = dispatchers.iter().position(|(id, _)| *id == runtime.id()) {
        return index;
    }
    let (sender, mut deliveries) = mpsc::unbounded_channel::<Delivery>();
    runtime.spawn(async move {
        while let Some(deliver) = deliveries.recv().await {
            deliver();
        }
    });
    let dispatcher = (runtime.id(), sender);
    // A dispatcher ends with its runtime.
    if let Some(index) = dispatchers.iter().position(|(_, sender)| sender.is_closed()) {
        dispatchers[index] = dispatcher;
        return index;
    }
    dispatchers.push(dispatcher);
    dispatchers.len() - 1
}

/// Calls `deliver` on the caller's dispatcher, or here if its runtime has ended.
fn dispatch(home: Home, deliver: impl FnOnce() + Send + 'static) {
    if let Err(undelivered) = send(home, Box::new(deliver)) {
        undelivered();
    }
}

/// Returns the delivery if there is no dispatcher. Runs nothing itself: a caller's waker must not run under the lock.
fn send(home: Home, deliver: Delivery) -> Result<(), Delivery> {
    let dispatchers = DISPATCHERS.read().unwrap_or_else(PoisonError::into_inner);
    match home.and_then(|index| dispatchers.get(index)) {
        Some((_, dispatcher)) => dispatcher.send(deliver).map_err(|undelivered| undelivered.0),
        None => Err(deliver),
    }
}
