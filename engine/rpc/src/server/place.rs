//! A connection's role: served, or only refused for a short time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use quire_net::{Permit, Standing};

use super::shared::Shared;

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
    /// The stay of a connection with this permit; `draining` completes when the server drains.
    pub(super) fn of(permit: &Permit, shared: &Arc<Shared>, mut draining: Draining) -> Self {
        let standing = Arc::clone(permit.standing());
        if permit.is_refused() {
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

/// Completes when an excess connection's time is over: clients send at once, so a silent one is closed as soon as
/// another connection waits.
async fn refusal_time(shared: Arc<Shared>) {
    tokio::time::sleep(REFUSAL_TIME_MIN).await;
    let longest = shared.limits.handshake_timeout.min(REFUSAL_TIME_MAX);
    // Either ends the wait.
    let _ = tokio::time::timeout(longest, shared.places.crowded()).await;
}
