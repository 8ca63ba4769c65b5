//! How many requests may wait in the whole server: each connection has one place, and all connections share the others.
//!
//! A connection that gets no place has a request that waits already, and its answer wakes the connection. So a place that
//! is given back wakes no one, and no connection starves. Must not know what a request is.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The places that all connections share.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// Where a request waits; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// `None` for the connection's own.
    shared: Option<Arc<AtomicUsize>>,
}

impl Place {
    /// The connection's own.
    pub(crate) const OWN: Self = Self { shared: None };
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// Whether a connection may have another request wait; `is_first` if none of its requests does.
    pub(crate) fn has_room(&self, is_first: bool) -> bool {
        is_first || self.taken.load(Ordering::Relaxed) < self.most
    }

    /// A place, if there is one.
    pub(crate) fn take(&self, is_first: bool) -> Option<Place> {
        if is_first {
            return Some(Place::OWN);
        }
        // Only the count itself is shared, so no other memory has to be seen in any order.
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Place { shared: Some(Arc::clone(&self.taken)) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(taken) = &self.shared {
            taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_always_has_a_place_and_others_have_so_many_and_no_more() {
        let places = Places::new(2);
        let taken: Vec<Place> = [true, false, true, false].into_iter().filter_map(|first| places.take(first)).collect();
        assert_eq!(taken.len(), 4);
        assert!(places.take(false).is_none() && !places.has_room(false));
        assert!(places.take(true).is_some() && places.has_room(true));
        drop(taken);
        assert!(places.take(false).is_some() && places.has_room(false));
    }
}
