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

/// Calls `deliver` for each item at its home.
pub(crate) fn dispatch<T: Send + 'static>(items: impl Iterator<Item = (Home, T)>, deliver: fn(T)) {
    let dispatchers = DISPATCHERS.read().unwrap_or_else(PoisonError::into_inner);
    for (home, batch) in by_home(items) {
        let deliver_batch: Delivery = Box::new(move || batch.into_iter().for_each(deliver));
        let undelivered = match home.and_then(|place| dispatchers.get(place)) {
            Some((_, dispatcher)) => dispatcher.send(deliver_batch).err().map(|unsent| unsent.0),
            None => Some(deliver_batch),
        };
        if let Some(deliver_batch) = undelivered {
            deliver_batch();
        }
    }
}

fn by_home<T>(items: impl Iterator<Item = (Home, T)>) -> Vec<(Home, Vec<T>)> {
    let mut batches: Vec<(Home, Vec<T>)> = Vec::new();
    for (home, item) in items {
        // There are about as many homes as cores.
        match batches.iter_mut().find(|batch| batch.0 == home) {
            Some((_, batch)) => batch.push(item),
            None => batches.push((home, vec![item])),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, thread};

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn the_answers_of_a_batch_cross_to_each_runtime_in_one_message() {
        let items = [(Some(1), 'a'), (None, 'b'), (Some(0), 'c'), (Some(1), 'd'), (None, 'e')];
        let batches = by_home(items.into_iter());
        assert_eq!(batches, [(Some(1), vec!['a', 'd']), (None, vec!['b', 'e']), (Some(0), vec!['c'])]);
    }

    #[test]
    fn items_are_delivered_on_the_thread_of_their_runtime() {
        let runtime = runtime();
        let (sender, delivered) = channel();
        runtime.block_on(async {
            let home = here();
            assert_eq!(home, here(), "a runtime has one dispatcher");
            let items = vec![(home, sender.clone()), (home, sender.clone()), (None, sender.clone())];
            let worker = thread::spawn(|| {
                dispatch(items.into_iter(), |sender| sender.send(thread::current().id()).unwrap());
                thread::current().id()
            });
            let worker = worker.join().unwrap();
            assert_eq!(delivered.recv(), Ok(worker), "without a runtime the worker delivers");
            assert!(delivered.try_recv().is_err(), "the runtime's thread has not run its dispatcher");
            tokio::task::yield_now().await;
            let here = thread::current().id();
            assert_eq!(delivered.try_iter().collect::<Vec<_>>(), [here, here]);
        });
    }

    #[test]
    fn the_worker_delivers_if_the_runtime_has_ended() {
        let (first, second) = (runtime(), runtime());
        let home = first.block_on(async { here() });
        assert_ne!(second.block_on(async { here() }), home, "each runtime has its own");
        drop(first);
        let (sender, delivered) = channel();
        dispatch([(home, sender)].into_iter(), |sender| sender.send(()).unwrap());
        assert_eq!(delivered.try_recv(), Ok(()));
    }
}
