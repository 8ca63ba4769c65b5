//! Takes the answers of a batch to the runtimes where they are awaited: one message a runtime, whose dispatcher task then
//! wakes the callers from inside. If the worker woke each caller, each would cost a system call, and on a shared core a
//! switch of threads. Must not know what an answer says.

use std::{
    cell::Cell,
    sync::{PoisonError, RwLock},
};

use tokio::{
    runtime::{Handle, Id},
    sync::mpsc,
};

/// The place of a caller's dispatcher; `None` for a caller outside any runtime, which is woken by the worker.
///
/// A place that another runtime has taken over in the meantime does no harm: its dispatcher wakes the caller as well.
pub(crate) type Home = Option<usize>;

type Delivery = Box<dyn FnOnce() + Send>;

/// Every runtime's dispatcher. The channels are unbounded, because there are never more answers in them than callers
/// that wait. Shared by the whole process, as runtimes are.
static DISPATCHERS: RwLock<Vec<(Id, mpsc::UnboundedSender<Delivery>)>> = RwLock::new(Vec::new());

thread_local! {
    static HERE: Cell<Option<(Id, usize)>> = const { Cell::new(None) };
}

/// The dispatcher of the runtime that this thread works for, started when it is first needed.
pub(crate) fn here() -> Home {
    let runtime = Handle::try_current().ok()?;
    if let Some((id, place)) = HERE.get()
        && id == runtime.id()
    {
        return Some(place);
    }
    let place = place_of(&runtime);
    HERE.set(Some((runtime.id(), place)));
    Some(place)
}

fn place_of(runtime: &Handle) -> usize {
    let mut dispatchers = DISPATCHERS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = dispatchers.iter().position(|(id, _)| *id == runtime.id()) {
        return place;
    }
    let (sender, mut deliveries) = mpsc::unbounded_channel::<Delivery>();
    runtime.spawn(async move {
        while let Some(deliver) = deliveries.recv().await {
            deliver();
        }
    });
    let dispatcher = (runtime.id(), sender);
    // A dispatcher ends with its runtime.
    if let Some(place) = dispatchers.iter().position(|(_, sender)| sender.is_closed()) {
        dispatchers[place] = dispatcher;
        return place;
    }
    dispatchers.push(dispatcher);
    dispatchers.len() - 1
}

/// Calls `deliver` at a home, or here if its runtime has ended.
pub(crate) fn dispatch(home: Home, deliver: impl FnOnce() + Send + 'static) {
    if let Err(undelivered) = send(home, Box::new(deliver)) {
        undelivered();
    }
}

/// Hands it back if there is no dispatcher. Runs nothing itself: what a caller's waker does must not happen under the lock.
fn send(home: Home, deliver: Delivery) -> Result<(), Delivery> {
    let dispatchers = DISPATCHERS.read().unwrap_or_else(PoisonError::into_inner);
    match home.and_then(|place| dispatchers.get(place)) {
        Some((_, dispatcher)) => dispatcher.send(deliver).map_err(|undelivered| undelivered.0),
        None => Err(deliver),
    }
}
