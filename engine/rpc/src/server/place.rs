//! Permit for one connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::observer::Refusal;
use super::places::has_taken;
use super::shared::Shared;

/// Least and greatest time before the server ends an excess connection.
const REFUSAL_TIME_MIN: Duration = Duration::from_millis(100);
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);

/// Permit for one connection, released on drop.
pub(super) struct Place {
    shared: Arc<Shared>,
    /// Excess connection: it is only refused.
    pub(super) refusing: bool,
}

impl Place {
    /// Waits for a permit. While all permits, those for refusals included, are taken, the next connection stays in the
    /// system's queue: it costs nothing there, and is refused later instead of never.
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

/// Completes when an excess connection's time is over: clients send at once, so a silent one is closed as soon as
/// another connection waits.
pub(super) async fn refusal_time(shared: Arc<Shared>) {
    tokio::time::sleep(REFUSAL_TIME_MIN).await;
    let longest = shared.limits.handshake_timeout.min(REFUSAL_TIME_MAX);
    // Either ends the wait.
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
