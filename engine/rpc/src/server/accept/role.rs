//! A connection's role: served, or only refused for a short time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use quire_net::{Permit, Permits, Standing};

/// Least and greatest time before the server ends an excess connection.
const REFUSAL_TIME_MIN: Duration = Duration::from_millis(100);
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);

pub(crate) type Draining = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection's role and the signal for its end.
pub(crate) struct Role {
    /// Completes when the connection must end after its current calls.
    pub(crate) draining: Draining,
    /// Excess connection: it is only refused.
    pub(crate) refusing: bool,
    pub(crate) standing: Arc<Standing>,
}

impl Role {
    /// The role of a connection with this permit; `draining` completes when the server drains. An excess connection
    /// stays for `refusal_max` at most.
    pub(crate) fn of(permit: &Permit, permits: &Permits, mut draining: Draining, refusal_max: Duration) -> Self {
        let standing = Arc::clone(permit.standing());
        if permit.is_refused() {
            return Self { draining: Box::pin(refusal_time(permits.clone(), refusal_max)), refusing: true, standing };
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
async fn refusal_time(permits: Permits, refusal_max: Duration) {
    tokio::time::sleep(REFUSAL_TIME_MIN).await;
    // Either ends the wait.
    let _ = tokio::time::timeout(refusal_max.min(REFUSAL_TIME_MAX), permits.crowded()).await;
}
