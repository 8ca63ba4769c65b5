//! A lane's task: connects, runs the connection, and reconnects when it ends.
//!
//! Implements: gRPC's "Connection Backoff".

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::connection::Connection;
use super::lane::{Lane, State};
use super::retry::{exponential, jitter};
use super::settings::Settings;
use super::target::Target;
use crate::status::Status;

/// Creates a lane and spawns its task.
pub(super) fn spawn(target: &Arc<Target>, settings: &Arc<Settings>) -> Arc<Lane> {
    let lane = Lane::new(settings);
    tokio::spawn(run(Arc::clone(&lane), Arc::clone(target), Arc::clone(settings)));
    lane
}

async fn run(lane: Arc<Lane>, target: Arc<Target>, settings: Arc<Settings>) {
    let mut failures = 0;
    while !lane.is_closing() {
        lane.wanted().await;
        if lane.is_closing() && lane.is_empty() {
            break;
        }
        lane.set_state(State::Connecting);
        let deadline = Instant::now() + settings.connect_timeout;
        let connected = timeout_at(deadline, target.connect(lane.counters())).await;
        let reason = match connected {
            Err(_) => "no connection in time".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(io)) => {
                let mut connection = Connection::new(io, Arc::clone(&lane), Arc::clone(&target), Arc::clone(&settings));
                let reason = connection.run().await;
                if connection.is_retired() {
                    tokio::spawn(connection.finish());
                    failures = 0;
                    lane.set_state(State::Idle);
                    continue;
                }
                if connection.was_ready() {
                    failures = 0;
                    lane.set_state(State::Idle);
                    continue;
                }
                reason
            }
        };
        let reason = format!("cannot reach {}: {reason}", target.authority);
        lane.set_state(State::Failing(reason.clone()));
        let pause = jitter(exponential(settings.reconnect_first, settings.reconnect_max, failures));
        failures += 1;
        back_off(&lane, Instant::now() + pause, &Status::unavailable(reason)).await;
        lane.set_state(State::Idle);
    }
    lane.end();
}

/// Waits for the next attempt; new calls fail meanwhile, unless they wait for a connection.
async fn back_off(lane: &Lane, until: Instant, status: &Status) {
    let mut sleep = std::pin::pin!(sleep_until(until));
    std::future::poll_fn(|cx| {
        lane.register(cx.waker());
        lane.fail_fast(status);
        if lane.is_closing() { Poll::Ready(()) } else { sleep.as_mut().poll(cx) }
    })
    .await;
}
