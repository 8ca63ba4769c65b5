//! Who may come in: bounded connections and calls, with a place given back when it is dropped. Must not know any
//! transport.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bookstore::fault::{Fault, Limit};

/// A bounded number of places.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    limit: Limit,
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Pass {
    taken: Arc<AtomicUsize>,
}

impl Gate {
    pub(crate) fn new(limit: Limit, most: usize) -> Self {
        Self { limit, most, taken: Arc::default() }
    }

    /// A place at once or a refusal at once.
    pub(crate) fn enter(&self) -> Result<Pass, Fault> {
        // Made first, so that a refusal gives the place back.
        let pass = Pass { taken: Arc::clone(&self.taken) };
        if self.taken.fetch_add(1, Ordering::Relaxed) < self.most {
            return Ok(pass);
        }
        Err(Fault::Limit { limit: self.limit, at: u64::try_from(self.most).unwrap_or(u64::MAX) })
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;
    use bookstore::fault::Limit;

    #[test]
    fn a_full_gate_refuses_until_a_place_is_given_back() {
        let gate = Gate::new(Limit::Connections, 2);
        let (first, _second) = (gate.enter().unwrap(), gate.enter().unwrap());
        assert!(gate.enter().unwrap_err().to_string().contains("limit connections is 2"));
        assert_eq!(gate.taken(), 2);
        drop(first);
        assert!(gate.enter().is_ok());
    }
}
