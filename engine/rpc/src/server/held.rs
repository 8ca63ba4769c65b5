//! Per-thread reference counts of a service; with one shared count, two threads that only answer each lose a quarter of
//! a call.

use std::cell::Cell;
use std::iter::repeat_n;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use quire_net::Apart;

/// A call's reference to its service.
#[derive(Debug)]
pub struct Held<S>(Arc<Apart<Arc<S>>>);

impl<S> Deref for Held<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0.0
    }
}

/// A service with a reference count per hardware thread, rounded up to a power of two.
pub(super) struct Holds<S>(Box<[Arc<Apart<Arc<S>>>]>);

impl<S> Holds<S> {
    pub(super) fn new(service: Arc<S>) -> Self {
        let threads = available_parallelism().map_or(1, usize::from).next_power_of_two();
        Self(repeat_n(service, threads).map(|service| Arc::new(Apart(service))).collect())
    }

    #[inline]
    pub(super) fn hold(&self) -> Held<S> {
        // The length is a power of two.
        Held(Arc::clone(&self.0[thread_number() & (self.0.len() - 1)]))
    }
}

/// This thread's number, assigned in the order of first calls.
#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_apart() {
        let service = Arc::new(7);
        let holds = Holds::new(Arc::clone(&service));
        let (here, again) = (holds.hold(), holds.hold());
        assert!(Arc::ptr_eq(&here.0, &again.0));
        assert_eq!((*here, Arc::strong_count(&here.0)), (7, 3));
        // Other tests number threads too, so a few threads may share this one's count, but not all.
        let hold_elsewhere = |_| std::thread::scope(|scope| scope.spawn(|| holds.hold()).join().unwrap());
        let apart = (0..64).map(hold_elsewhere).any(|there| !Arc::ptr_eq(&here.0, &there.0));
        assert_eq!(apart, holds.0.len() > 1);
        drop((here, again, holds));
        assert_eq!(Arc::strong_count(&service), 1);
    }
}
