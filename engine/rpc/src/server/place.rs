//! A connection's place: waited for, and given back.
//!
//! Must not know what a connection says.
//!
//! Implements: no specification.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::observer::Refusal;
use super::places::has_taken;
use super::shared::Shared;

/// What a connection that is being refused has until it hears that the server ends it.
const REFUSAL_TIME_MIN: Duration = Duration::from_millis(100);
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);

/// A connection's place, given back when it is dropped.
pub(super) struct Place {
    shared: Arc<Shared>,
    /// The connection is one too many: it only hears that.
    pub(super) refusing: bool,
}

impl Place {
    /// Waits for a place. While every connection is taken, and every place for refusals too, the next connection stays
    /// in the system's queue: it costs the server nothing there, and hears its refusal later instead of never.
    pub(super) async fn take(shared: &Arc<Shared>) -> Self {
        loop {
            let freed = shared.places.freed.notified();
            if let Some(place) = Self::try_take(shared) {
                return place;
            }
            shared.places.crowded.notify_one();
            freed.await;
        }
    }

    fn try_take(shared: &Arc<Shared>) -> Option<Self> {
        let (places, limits) = (&shared.places, &shared.limits);
        let refusing = if has_taken(&places.served, limits.connections_max) {
            false
        } else if has_taken(&places.refused, limits.refusals_max.max(1)) {
            shared.observer.refused(Refusal::Connections);
            true
        } else {
            return None;
        };
        Some(Self { shared: Arc::clone(shared), refusing })
    }
}

/// Completes when a connection that is being refused has had its time: a client speaks at once, so one that is silent
/// makes room as soon as another waits.
pub(super) async fn refusal_time(shared: Arc<Shared>) {
    tokio::time::sleep(REFUSAL_TIME_MIN).await;
    let longest = shared.limits.handshake_timeout.min(REFUSAL_TIME_MAX);
    // Either is the end.
    let _ = tokio::time::timeout(longest, shared.places.crowded.notified()).await;
}

impl Drop for Place {
    fn drop(&mut self) {
        let places = &self.shared.places;
        let counter = if self.refusing { &places.refused } else { &places.served };
        counter.fetch_sub(1, Ordering::Relaxed);
        places.freed.notify_one();
    }
}
