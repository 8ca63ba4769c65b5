//! Publishes changes to watchers. Each has a bounded queue; one that falls behind is cut off, so no writer waits.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use hosting::{Client, Live, Share, Shares};

use crate::{
    entry::{Key, Value, Version},
    fault::{Fault, Limit},
    settings::Limits,
};

/// Memory of an event beside its key and value.
const EVENT_BYTES: usize = 96;

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It has a new value.
    Put,
    /// A caller deleted it.
    Deleted,
    /// It expired.
    Expired,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of change.
    pub kind: EventKind,
    /// The key.
    pub key: Key,
    /// The new value; empty unless put.
    pub value: Bytes,
    /// Version, never smaller than that of an earlier change of the same key.
    pub version: Version,
}

impl Event {
    fn bytes(&self) -> usize {
        EVENT_BYTES + self.key.len() + self.value.len()
    }
}

/// Reason why a watch ended.
#[derive(Clone, Debug)]
enum End {
    /// The service ends, or the fault was already delivered.
    Quiet,
    /// The watcher fell behind.
    CutOff(Fault),
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    bytes: usize,
    /// Set once no more events will come.
    end: Option<End>,
    reader: Option<Waker>,
}

#[derive(Debug)]
struct Watcher {
    prefix: Key,
    waiting: Mutex<Waiting>,
}

impl Watcher {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, end: End) {
        let mut waiting = self.lock();
        if matches!(end, End::CutOff(_)) {
            (waiting.events, waiting.bytes) = (VecDeque::new(), 0);
        }
        waiting.end.get_or_insert(end);
        let reader = waiting.reader.take();
        drop(waiting);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// All watchers.
#[derive(Debug)]
pub(crate) struct Hub {
    /// Length of the list, so that writers need not lock an empty list.
    count: AtomicUsize,
    watchers: Mutex<Vec<(Arc<Watcher>, Share)>>,
    shares: Shares,
    watchers_max: Live,
    events_max: usize,
    bytes_max: usize,
}

impl Hub {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            count: AtomicUsize::new(0),
            watchers: Mutex::default(),
            shares: Shares::new(limits.watchers.clone()),
            watchers_max: limits.watchers.clone(),
            events_max: limits.watch_events,
            bytes_max: limits.watch_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Arc<Watcher>, Share)>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    pub(crate) fn watch(self: &Arc<Self>, prefix: &[u8], client: Client) -> Result<Watch, Fault> {
        let limit = Fault::Limit { limit: Limit::Watchers, at: self.watchers_max.get() };
        let share = self.shares.take(client).ok_or(limit)?;
        let watcher = Arc::new(Watcher { prefix: Key::from(prefix), waiting: Mutex::default() });
        let mut watchers = self.lock();
        watchers.push((Arc::clone(&watcher), share));
        self.count.store(watchers.len(), SeqCst);
        Ok(Watch { hub: Arc::clone(self), watcher })
    }

    fn retain(&self, mut keep: impl FnMut(&Arc<Watcher>) -> bool) {
        let mut watchers = self.lock();
        watchers.retain(|(watcher, _)| keep(watcher));
        self.count.store(watchers.len(), SeqCst);
    }

    /// Queues the change for the key's watchers. Called with the key's map slot locked, which keeps its events in
    /// order.
    pub(crate) fn notify(&self, kind: EventKind, key: &Key, value: Option<&Value>, version: Version) {
        if self.count() == 0 {
            return;
        }
        let mut event = None;
        self.retain(|watcher| {
            if !key.starts_with(&watcher.prefix) {
                return true;
            }
            let event = event.get_or_insert_with(|| {
                let value = value.map(Value::bytes).cloned().unwrap_or_default();
                Event { kind, key: Key::clone(key), value, version }
            });
            self.push(watcher, event)
        });
    }

    /// Queues an event; false if the watcher is cut off.
    fn push(&self, watcher: &Watcher, event: &Event) -> bool {
        let mut waiting = watcher.lock();
        let over = if waiting.events.len() >= self.events_max {
            Some(Fault::Limit { limit: Limit::WatchEvents, at: self.events_max })
        } else if waiting.bytes + event.bytes() > self.bytes_max {
            Some(Fault::Limit { limit: Limit::WatchBytes, at: self.bytes_max })
        } else {
            None
        };
        if let Some(fault) = over {
            drop(waiting);
            watcher.end(End::CutOff(fault));
            return false;
        }
        waiting.bytes += event.bytes();
        waiting.events.push_back(event.clone());
        let reader = waiting.reader.take();
        drop(waiting);
        if let Some(reader) = reader {
            reader.wake();
        }
        true
    }

    /// Ends every watch, because the service ends.
    pub(crate) fn end(&self) {
        self.retain(|watcher| {
            watcher.end(End::Quiet);
            false
        });
    }
}

/// Changes of the keys with a prefix since its creation; dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    hub: Arc<Hub>,
    watcher: Arc<Watcher>,
}

impl Watch {
    /// The next change; `None` when the service ends or after a fault.
    pub async fn next(&mut self) -> Option<Result<Event, Fault>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event, Fault>>> {
        let mut waiting = self.watcher.lock();
        if let Some(event) = waiting.events.pop_front() {
            waiting.bytes -= event.bytes();
            return Poll::Ready(Some(Ok(event)));
        }
        if let Some(end) = &mut waiting.end {
            return Poll::Ready(match std::mem::replace(end, End::Quiet) {
                End::Quiet => None,
                End::CutOff(fault) => Some(Err(fault)),
            });
        }
        waiting.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.retain(|watcher| !Arc::ptr_eq(watcher, &self.watcher));
    }
}
