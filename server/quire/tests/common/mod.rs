//! What the system tests share: a server in a process of its own, the ways to talk to it, and an audit of what it
//! says it did. Must not know what any one test expects.

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

/// Far longer than anything here takes on a slow machine; only a failing test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How often a condition is looked at.
const GLANCE: Duration = Duration::from_millis(2);

/// Looks until `condition` gives something.
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

/// As [`wait_for`], for conditions that take a call to know.
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
