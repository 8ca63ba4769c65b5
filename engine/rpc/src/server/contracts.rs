//! The contracts of a server's services, for reflection and JSON.

use std::sync::{Arc, Mutex, PoisonError};

/// Contracts of a builder's services, each an encoded `FileDescriptorSet`. Shared, so that a service also sees the
/// contracts of services added after it.
#[derive(Clone, Default)]
pub(crate) struct Contracts(Arc<Mutex<Vec<&'static [u8]>>>);

impl Contracts {
    pub(super) fn add(&self, set: &'static [u8]) {
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !set.is_empty() && !sets.contains(&set) {
            sets.push(set);
        }
    }

    /// Contracts added so far, without duplicates.
    pub(crate) fn sets(&self) -> Vec<&'static [u8]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
