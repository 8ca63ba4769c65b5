//! The contracts of a server's services, for reflection and JSON.
//!
//! Must not know what is done with them.
//!
//! Implements: no specification.

use std::sync::{Arc, Mutex, PoisonError};

/// The contracts of a builder's services, each an encoded `FileDescriptorSet`. Shared, so that a service can know those
/// of services that are added after it.
#[derive(Clone, Default)]
pub(crate) struct Contracts(Arc<Mutex<Vec<&'static [u8]>>>);

impl Contracts {
    pub(super) fn add(&self, set: &'static [u8]) {
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !set.is_empty() && !sets.contains(&set) {
            sets.push(set);
        }
    }

    /// Those added so far, each once.
    pub(crate) fn sets(&self) -> Vec<&'static [u8]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
