//! Closed loop: each client sends its next request after the answer to the last.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::state::WorkerState;
use crate::recorder::Asked;
use crate::workload::Session;

/// Spawns a task for each client.
pub(super) fn spawn<S: Session>(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    state: &Rc<WorkerState>,
    sessions: &[(usize, Rc<S>)],
    began: Instant,
    ramp_up: Duration,
) {
    let plan = &state.shared.plan;
    let clients = plan.connections * plan.in_flight;
    let slots = (0..plan.in_flight).flat_map(|position| sessions.iter().map(move |session| (position, session)));
    for (slot, (position, (connection, session))) in slots.enumerate() {
        let client = connection * plan.in_flight + position;
        let (state, session) = (Rc::clone(state), Rc::clone(session));
        let share = u32::try_from(client).unwrap_or(u32::MAX);
        let begins_at = began + ramp_up / u32::try_from(clients).unwrap_or(u32::MAX) * share;
        tasks.spawn_local(async move {
            let begin = async {
                tokio::time::sleep_until(begins_at.into()).await;
                Ok(())
            };
            state.wait(begin).await?;
            let mut at = Instant::now();
            for turn in 0.. {
                if state.is_stopped() {
                    break;
                }
                let Some(number) = state.next_number() else { break };
                let asked = Asked { number, client: share, turn, due_at: None };
                at = state.make(&*session, slot, asked, at).await;
                if state.window.has_ended(at) {
                    break;
                }
            }
            Ok(())
        });
    }
}
