//! Takes the answers of a transaction to the threads where they are awaited: one message a thread, whose task
//! then wakes the callers from inside. Woken from the ledger's thread, each caller would cost a system call, and
//! on a shared core a switch of threads. Must not know what an answer says.

use std::{
    cell::Cell,
    sync::{OnceLock, PoisonError, RwLock},
};

use tokio::{runtime::Handle, sync::mpsc};

use super::{Decision, Job};
use crate::fault::Fault;

type Answer = (Job, Result<Decision, Fault>);
/// Unbounded, because there are never more answers under way than callers who wait.
type Courier = mpsc::UnboundedSender<Vec<Answer>>;

/// The courier of threads that have none of their own.
pub(super) const ANYWHERE: usize = 0;

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(ANYWHERE) };
}

/// The courier of this thread.
pub(super) fn here() -> usize {
    HERE.get()
}

/// Every courier, by its number.
#[derive(Default)]
pub(super) struct Couriers {
    anywhere: OnceLock<Courier>,
    threads: RwLock<Vec<Courier>>,
}

fn courier(runtime: &Handle) -> Courier {
    let (sender, mut answers) = mpsc::unbounded_channel::<Vec<Answer>>();
    runtime.spawn(async move {
        while let Some(batch) = answers.recv().await {
            for (job, decision) in batch {
                job.task.answer(decision);
            }
        }
    });
    sender
}

impl Couriers {
    pub(super) fn employ(&self, runtime: &Handle) {
        self.anywhere.get_or_init(|| courier(runtime));
    }

    pub(super) fn employ_here(&self, runtime: &Handle) {
        let mut threads = self.threads.write().unwrap_or_else(PoisonError::into_inner);
        threads.push(courier(runtime));
        HERE.set(threads.len());
    }

    pub(super) fn deliver(&self, answers: impl Iterator<Item = Answer>) {
        let threads = self.threads.read().unwrap_or_else(PoisonError::into_inner);
        let mut bags: Vec<Vec<Answer>> = Vec::new();
        bags.resize_with(threads.len() + 1, Vec::new);
        for answer in answers {
            let bag = if answer.0.courier < bags.len() { answer.0.courier } else { ANYWHERE };
            bags[bag].push(answer);
        }
        for (number, bag) in bags.into_iter().enumerate().filter(|(_, bag)| !bag.is_empty()) {
            let courier = if number == ANYWHERE { self.anywhere.get() } else { threads.get(number - 1) };
            let undelivered = match courier {
                Some(courier) => courier.send(bag).err().map(|unsent| unsent.0),
                None => Some(bag),
            };
            for (job, decision) in undelivered.into_iter().flatten() {
                job.task.answer(decision);
            }
        }
    }
}
