//! One worker: a thread with its own connections, which makes requests when they are due and records them.
//!
//! Workers share only [`Shared`]: the next request number, and the order to stop.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinSet, LocalSet};

use super::state::{Shared, Stage, Timer, WorkerState, until};
use super::usage::Usage;
use crate::cores::pin_to;
use crate::measurement::Finish;
use crate::plan::{End, Pace};
use crate::recorder::{Part, Scheduled, Window};
use crate::schedule::DueTimes;
use crate::workload::socket::CONNECT_TIME_MAX;
use crate::workload::{Session, Traffic, Workload};

/// Message from a worker to the coordinator.
pub(super) enum Message {
    /// Its connections are open, or one failed to open.
    Opened(anyhow::Result<()>),
    /// Results of an interval.
    Part { interval: usize, span: Duration, part: Box<Part> },
    /// It has finished.
    Done(Box<Done>),
    /// It failed and ends.
    Broken(anyhow::Error),
}

/// Final report of a worker.
#[derive(Default)]
pub(super) struct Done {
    pub(super) usage: Usage,
    /// Time that `usage` covers.
    pub(super) watched: Duration,
    pub(super) traffic: Traffic,
    pub(super) finishes: Vec<Finish>,
}

/// Body of the worker thread.
pub(super) fn work<W: Workload>(
    shared: &Arc<Shared>,
    workload: &W,
    number: usize,
    messages: &mpsc::UnboundedSender<Message>,
) {
    if let Some(cores) = &shared.plan.cores {
        // A run without pinning is still a measurement.
        drop(pin_to(cores[number % cores.len()]));
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(messages.send(Message::Opened(Err(error.into())))),
    };
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        match open(shared, workload, number).await {
            Err(error) => drop(messages.send(Message::Opened(Err(error)))),
            Ok(sessions) => {
                drop(messages.send(Message::Opened(Ok(()))));
                let worker = Worker { shared: Arc::clone(shared), number, messages: messages.clone() };
                if let Err(error) = worker.run(sessions).await {
                    drop(messages.send(Message::Broken(error)));
                }
            }
        }
    });
}

/// Opens this worker's connections; returns them by number.
async fn open<W: Workload>(
    shared: &Shared,
    workload: &W,
    number: usize,
) -> anyhow::Result<Vec<(usize, Rc<W::Session>)>> {
    let mut sessions = Vec::new();
    for connection in (number..shared.plan.connections).step_by(shared.plan.workers) {
        let session = tokio::time::timeout(CONNECT_TIME_MAX, workload.open(connection)).await;
        let session = session.map_err(|_| {
            let (number, all) = (connection + 1, shared.plan.connections);
            anyhow::anyhow!("connection {number} of {all} did not open within {}s", CONNECT_TIME_MAX.as_secs())
        })?;
        sessions.push((connection, Rc::new(session?)));
    }
    Ok(sessions)
}

struct Worker {
    shared: Arc<Shared>,
    number: usize,
    messages: mpsc::UnboundedSender<Message>,
}

/// Usage of a worker and its connections at some time.
#[derive(Clone, Copy)]
struct Sample {
    usage: Usage,
    at: Instant,
    traffic: Traffic,
}

impl Worker {
    async fn run<S: Session>(self, sessions: Vec<(usize, Rc<S>)>) -> anyhow::Result<()> {
        let mut stage = self.shared.stage.subscribe();
        let Stage::Running(began) = *stage.wait_for(|stage| *stage != Stage::Opening).await? else { return Ok(()) };
        let plan = &self.shared.plan;
        let begin = began + plan.warm_up;
        let window = Window {
            begin,
            end: match plan.end {
                End::After(duration) => Some(begin + duration),
                End::Count(_) => None,
            },
        };
        let slots = sessions.len() * plan.in_flight;
        let state = Rc::new(WorkerState::new(&self.shared, u32::try_from(self.number)?, window, slots));
        let mut tasks = JoinSet::new();
        match &plan.pace {
            Pace::Closed => spawn_closed(&mut tasks, &state, &sessions),
            Pace::Open { arrivals, profile } => {
                let profile = profile.clone().preceded_by(plan.warm_up.as_secs_f64());
                let due = DueTimes::new(profile, *arrivals, self.number, plan.workers, plan.seed);
                let (state, timer, sessions) = (Rc::clone(&state), Timer::new()?, sessions.clone());
                tasks.spawn_local(async move { run_open(&state, &timer, due, began, sessions).await });
            }
        }
        let traffic = || total(sessions.iter().map(|(_, session)| session.traffic()));
        self.watch(&state, &mut tasks, traffic).await
    }

    /// Hands over the results at the end of every interval, until the tasks are done.
    async fn watch(
        &self,
        state: &WorkerState,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        traffic: impl Fn() -> Traffic,
    ) -> anyhow::Result<()> {
        let sample = || Sample { usage: Usage::of_this_thread(), at: Instant::now(), traffic: traffic() };
        let mut stage = self.shared.stage.subscribe();
        let mut keeping = std::pin::pin!(state.timeouts.keep());
        let begin = tokio::time::Instant::from_std(state.window.begin);
        let mut ticks = tokio::time::interval_at(begin, self.shared.interval);
        let mut window_end = std::pin::pin!(until(state.window.end));
        let (mut first, mut last) = (None, None);
        let mut part_began = state.window.begin;
        for interval in 0.. {
            let is_over = loop {
                tokio::select! {
                    biased;
                    () = &mut window_end, if last.is_none() => last = Some(sample()),
                    _ = ticks.tick() => break false,
                    ended = tasks.join_next() => match ended {
                        None => break true,
                        Some(ended) => ended??,
                    },
                    cut = stage.wait_for(|stage| *stage == Stage::Cut), if !state.timeouts.is_cut() => {
                        drop(cut);
                        state.timeouts.cut();
                    }
                    () = &mut keeping => {}
                }
            };
            let now = Instant::now();
            first = first.or_else(|| Some(sample()));
            if interval > 0 || is_over {
                let part = Box::new(state.recorder.borrow_mut().take());
                let span = now.saturating_duration_since(part_began);
                let _ = self.messages.send(Message::Part { interval: interval.max(1) - 1, span, part });
            }
            part_began = now.max(state.window.begin);
            if is_over {
                break;
            }
        }
        let (first, last) = (first.unwrap_or_else(sample), last.unwrap_or_else(sample));
        let mut recorder = state.recorder.borrow_mut();
        recorder.hand_over_rows();
        let done = Done {
            usage: last.usage.since(first.usage),
            watched: last.at.saturating_duration_since(first.at),
            traffic: Traffic {
                sent_bytes: last.traffic.sent_bytes.saturating_sub(first.traffic.sent_bytes),
                received_bytes: last.traffic.received_bytes.saturating_sub(first.traffic.received_bytes),
            },
            finishes: recorder.take_finishes(),
        };
        let _ = self.messages.send(Message::Done(Box::new(done)));
        Ok(())
    }
}

fn total(traffic: impl Iterator<Item = Traffic>) -> Traffic {
    traffic.fold(Traffic::default(), |sum, one| Traffic {
        sent_bytes: sum.sent_bytes + one.sent_bytes,
        received_bytes: sum.received_bytes + one.received_bytes,
    })
}

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

/// Makes the requests due in the window and before it, whether earlier ones are answered or not, and waits for their
/// answers.
///
/// A request waits for a free place on a connection for the timeout at most; without one it is recorded as not sent. So
/// every due request has an ending, however far the server is behind.
async fn run_open<S: Session>(
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
        let scheduled = Scheduled { number, client: u32::try_from(*connection)?, turn, due_at: Some(due_at) };
        requests.spawn_local(async move {
            state.make(&*session, slot, scheduled, now).await;
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

fn spawn_closed<S: Session>(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    state: &Rc<WorkerState>,
    sessions: &[(usize, Rc<S>)],
) {
    let plan = &state.shared.plan;
    let slots = (0..plan.in_flight).flat_map(|position| sessions.iter().map(move |session| (position, session)));
    for (slot, (position, (connection, session))) in slots.enumerate() {
        let client = connection * plan.in_flight + position;
        let (state, session) = (Rc::clone(state), Rc::clone(session));
        let client = u32::try_from(client).unwrap_or(u32::MAX);
        tasks.spawn_local(async move {
            let mut at = Instant::now();
            for turn in 0.. {
                if state.is_stopped() {
                    break;
                }
                let Some(number) = state.next_number() else { break };
                let scheduled = Scheduled { number, client, turn, due_at: None };
                at = state.make(&*session, slot, scheduled, at).await;
                if state.window.has_ended(at) {
                    break;
                }
            }
            Ok(())
        });
    }
}
