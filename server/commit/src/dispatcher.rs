//! Delivers the answers of a batch to the runtimes that await them: one message per runtime, whose dispatcher task then
//! wakes the callers from inside. If the worker woke each caller, each would cost a system call, and on a shared core a
//! thread switch.

use std::{
    cell::Cell,
    sync::{PoisonError, RwLock},
};

use tokio::{
    runtime::{Handle, Id},
    sync::mpsc,
};

/// Index of a caller's dispatcher; `None` for a caller outside any runtime, which the worker wakes.
///
/// An index that another runtime has since taken over is harmless: its dispatcher wakes the caller as well.
pub(crate) type Home = Option<usize>;

type Delivery = Box<dyn FnOnce() + Send>;

/// Dispatchers of all runtimes. The channels are unbounded, but hold at most one answer per waiting caller. Shared by
/// the whole process, as runtimes are.
static DISPATCHERS: RwLock<Vec<(Id, mpsc::UnboundedSender<Delivery>)>> = RwLock::new(Vec::new());

thread_local! {
    static HERE: Cell<Option<(Id, usize)>> = const { Cell::new(None) };
}

/// The dispatcher of this thread's runtime, started on first use.
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

/// Calls `deliver` on the caller's dispatcher, or here if its runtime has ended.
pub(crate) fn dispatch(home: Home, deliver: impl FnOnce() + Send + 'static) {
    if let Err(undelivered) = send(home, Box::new(deliver)) {
        undelivered();
    }
}

/// Returns the delivery if there is no dispatcher. Runs nothing itself: a caller's waker must not run under the lock.
fn send(home: Home, deliver: Delivery) -> Result<(), Delivery> {
    let dispatchers = DISPATCHERS.read().unwrap_or_else(PoisonError::into_inner);
    match home.and_then(|place| dispatchers.get(place)) {
        Some((_, dispatcher)) => dispatcher.send(deliver).map_err(|undelivered| undelivered.0),
        None => Err(deliver),
    }
}
