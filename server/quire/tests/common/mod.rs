//! Shared code of the system tests: a server process, its clients, and an audit of its records.

pub(crate) mod audit;
pub(crate) mod disk;
pub(crate) mod http;
pub(crate) mod lost_pages;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod store;

use std::{
    future::Future,
    thread,
    time::{Duration, Instant},
};

/// Far longer than anything here takes on a slow machine; only a failing test waits that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Interval of checks.
const GLANCE: Duration = Duration::from_millis(2);

/// Waits until `condition` returns something.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
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
pub(crate) async fn poll<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        tokio::time::sleep(GLANCE).await;
    }
}
