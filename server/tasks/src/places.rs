//! Limit of waiting requests in the whole server: one slot for each connection, and a shared pool of further ones.
//!
//! A connection that gets no slot already has a waiting request, whose answer wakes it. So a released slot need not
//! wake anyone, and no connection starves.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The shared pool of slots.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// Slot of a waiting request; released on drop.
#[derive(Debug)]
pub(crate) struct Place {
    /// `None` for the connection's own slot.
    shared: Option<Arc<AtomicUsize>>,
}

impl Place {
    /// The connection's own slot.
    pub(crate) const OWN: Self = Self { shared: None };
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// True if a connection may have another waiting request; `is_first` if it has none yet.
    pub(crate) fn has_room(&self, is_first: bool) -> bool {
        is_first || self.taken.load(Ordering::Relaxed) < self.most
    }

    /// Takes a slot, if there is one.
    pub(crate) fn take(&self, is_first: bool) -> Option<Place> {
        if is_first {
            return Some(Place::OWN);
        }
        // Relaxed, since the count guards no other memory.
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
