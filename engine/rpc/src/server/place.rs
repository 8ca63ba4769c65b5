//! The wait for a connection's place, and the time limit of an excess connection.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::observer::Refusal;
use super::places::{Place, Standing};
use super::shared::Shared;
use super::shares::Client;

/// Least and greatest time before the server ends an excess connection.
const REFUSAL_TIME_MIN: Duration = Duration::from_millis(100);
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);

pub(super) type Draining = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection's role and the signal for its end.
pub(super) struct Stay {
    /// Completes when the connection must end after its current calls.
    pub(super) draining: Draining,
    /// Excess connection: it is only refused.
    pub(super) refusing: bool,
    pub(super) standing: Arc<Standing>,
}

impl Stay {
    /// The stay of a connection in `place`; `draining` completes when the server drains.
    pub(super) fn of(place: &Place, shared: &Arc<Shared>, mut draining: Draining) -> Self {
        let standing = Arc::clone(place.standing());
        if place.is_refused() {
            return Self { draining: Box::pin(refusal_time(Arc::clone(shared))), refusing: true, standing };
        }
        let leaving = Arc::clone(&standing);
        let draining = Box::pin(poll_fn(move |cx| match leaving.poll_leave(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => draining.as_mut().poll(cx),
        }));
        Self { draining, refusing: false, standing }
    }
}

/// Waits for a place, or for one to be refused in. While all are taken, the next connection stays in the system's
/// accept queue: it costs the server nothing there, and is refused later instead of never.
pub(super) async fn take(shared: &Arc<Shared>, client: &Client) -> Place {
    let places = &shared.places;
    loop {
        let freed = places.freed().notified();
        if let Some(place) = places.take(client) {
            if let Some(other) = place.instead_of() {
                shared.observer.made_room(Refusal::Connections, other);
            }
            return place;
        }
        if let Some(place) = places.take_to_refuse(client) {
            shared.observer.refused_client(Refusal::Connections, client);
            return place;
        }
        places.crowded().notify_one();
        freed.await;
    }
}

/// Completes when an excess connection's time is over: clients send at once, so a silent one is closed as soon as
/// another connection waits.
async fn refusal_time(shared: Arc<Shared>) {
    tokio::time::sleep(REFUSAL_TIME_MIN).await;
    let longest = shared.limits.handshake_timeout.min(REFUSAL_TIME_MAX);
    // Either ends the wait.
    let _ = tokio::time::timeout(longest, shared.places.crowded().notified()).await;
}
