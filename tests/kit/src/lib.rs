//! Shared by the tests of programs, the models and the experiments: a server in a process of its own, a proxy with faults,
//! and the rules of a bookstore's log. `tests/kit/python` has the same for tests in Python.
//!
//! Must not know what a server serves.

pub mod ledger;
pub mod proxy;
pub mod server;

use std::{
    thread,
    time::{Duration, Instant},
};

pub use proxy::{Fault, Proxy};
pub use server::{Server, Written, signal};

/// Time limit of a wait in a test: far longer than anything takes on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Interval of checks.
const GLANCE: Duration = Duration::from_millis(2);

/// Waits until `condition` returns something.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        thread::sleep(GLANCE);
    }
}

/// As [`wait_for`], for asynchronous conditions.
pub async fn poll<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        tokio::time::sleep(GLANCE).await;
    }
}
