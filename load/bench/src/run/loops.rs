//! Open loop: requests at their due times, whether earlier ones are answered or not.
//!
//! A request waits for a free place on a connection for the timeout at most; without one it is recorded as not sent. So
//! every due request has an ending, however far the server is behind.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::state::{Stage, WorkerState};
use super::waits::Timer;
use crate::recorder::Asked;
use crate::schedule::DueTimes;
use crate::workload::Session;

/// Requests given up in a row before the other tasks of the thread run.
const GIVEN_UP_AT_ONCE: u64 = 1024;

/// Latest due time, in seconds: beyond, an instant could overflow.
const DUE_SECONDS_MAX: f64 = 86_400.0 * 365.0;

/// Places for requests: each belongs to a connection.
struct Places {
    free: RefCell<VecDeque<usize>>,
    freed: Notify,
    /// Slot of the wait for a place among the worker's other waits.
    waiting_slot: usize,
}

impl Places {
    /// Takes a place; `None` if none was free before `until`, or the run was stopped first.
    async fn take(&self, state: &WorkerState, now: &mut Instant, until: Instant) -> Option<usize> {
        if *now >= until {
            return None;
        }
        loop {
            let free = self.free.borrow_mut().pop_front();
            if free.is_some() {
                return free;
            }
            let freed = state.timeouts.within(self.waiting_slot, until, self.freed.notified()).await;
            *now = Instant::now();
            if freed.is_none() || *now >= until || state.is_stopped() {
                return None;
            }
        }
    }

    fn put_back(&self, slot: usize) {
        self.free.borrow_mut().push_back(slot);
        self.freed.notify_one();
    }
}

/// Makes the requests due in the window and before it, and waits for their answers.
pub(super) async fn run_open<S: Session>(
    state: &Rc<WorkerState>,
    timer: &Timer,
    due_times: DueTimes,
    began: Instant,
    sessions: Vec<(usize, Rc<S>)>,
) -> anyhow::Result<()> {
    // Connections take turns: the places of one are a whole round apart.
    let slots = sessions.len() * state.shared.plan.in_flight;
    let free = RefCell::new((0..slots).collect());
    let places = Rc::new(Places { free, freed: Notify::new(), waiting_slot: slots });
    // Ends the wait for a place when the run is stopped, and itself when this function returns.
    let mut stopper = JoinSet::new();
    let (mut stage, stopped) = (state.shared.stage.subscribe(), Rc::clone(&places));
    stopper.spawn_local(async move {
        drop(stage.wait_for(|stage| !matches!(stage, Stage::Running(_))).await);
        stopped.freed.notify_one();
    });
    let mut requests = JoinSet::new();
    let mut now = Instant::now();
    let mut stopped_at = None;
    let mut given_up = 0_u64;
    for (turn, due) in (0..).zip(due_times) {
        let due_at = began + Duration::from_secs_f64(due.min(DUE_SECONDS_MAX));
        if state.window.has_ended(due_at) {
            break;
        }
        if due_at > now && stopped_at.is_none() {
            state.wait(timer.until(due_at)).await?;
            now = Instant::now();
        }
        if state.is_stopped() && *stopped_at.get_or_insert(now) <= due_at {
            break;
        }
        let Some(number) = state.next_number() else { break };
        let place = match stopped_at {
            None => places.take(state, &mut now, due_at + state.shared.plan.timeout).await,
            Some(_) => None,
        };
        let Some(slot) = place else {
            state.recorder.borrow_mut().record_not_sent(number, due_at, now);
            given_up += 1;
            if given_up.is_multiple_of(GIVEN_UP_AT_ONCE) {
                tokio::task::yield_now().await;
                now = Instant::now();
            }
            continue;
        };
        let (connection, session) = &sessions[slot % sessions.len()];
        let (state, places, session) = (Rc::clone(state), Rc::clone(&places), Rc::clone(session));
        let asked = Asked { number, client: u32::try_from(*connection)?, turn, due_at: Some(due_at) };
        requests.spawn_local(async move {
            state.make(&*session, slot, asked, now).await;
            places.put_back(slot);
        });
        while let Some(ended) = requests.try_join_next() {
            ended?;
        }
    }
    while let Some(ended) = requests.join_next().await {
        ended?;
    }
    Ok(())
}

/// Spawns a task for each client.
pub(super) fn spawn_closed<S: Session>(
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
