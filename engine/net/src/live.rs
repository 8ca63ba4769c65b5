//! Numbers that may change while they are in use.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A number that may change while it is in use; clones share it.
#[derive(Clone)]
pub struct Live {
    number: Arc<AtomicUsize>,
    parts: usize,
    /// The number's part counts up to here.
    most: usize,
}

impl Live {
    /// The number now, or its part.
    #[inline]
    pub fn get(&self) -> usize {
        (self.number.load(Relaxed) / self.parts).min(self.most)
    }

    /// Changes the number, for all clones.
    pub fn set(&self, number: usize) {
        self.number.store(number, Relaxed);
    }

    /// The same number, but at most `most`.
    #[must_use]
    pub fn at_most(&self, most: usize) -> Self {
        Self { most: most.min(self.most), ..self.clone() }
    }

    /// This number divided by `parts`, as is its bound.
    #[must_use]
    pub fn part(&self, parts: usize) -> Self {
        let parts = parts.max(1);
        Self { parts: self.parts.saturating_mul(parts), most: self.most / parts, ..self.clone() }
    }
}

impl From<usize> for Live {
    fn from(number: usize) -> Self {
        Self { number: Arc::new(number.into()), parts: 1, most: usize::MAX }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
