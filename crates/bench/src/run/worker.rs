//! One worker: a thread with its own connections, which makes requests when they are due and records them.
//!
//! Must not know other workers but through [`Shared`]: which number the next request has, and when to stop.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinSet, LocalSet};

use super::patience::Patience;
use super::timer::Timer;
use super::usage::{self, Usage};
use crate::plan::{End, Pace, Plan};
use crate::recorder::{Asked, Part, Recorder, TIMED_OUT, Window};
use crate::report::csv::RowSink;
use crate::report::model::Finish;
use crate::schedule::DueTimes;
use crate::workload::{Answer, Ending, Session, Traffic, Turn, Workload};

/// Where a run stands, as the coordinator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Connections are being opened.
    Opening,
    /// Requests are made; the instant is the beginning, the warm-up's too.
    Running(Instant),
    /// No further requests; those under way are waited for.
    Stopping,
    /// Not even that.
    Cut,
}

/// What all workers of a run share.
pub(super) struct Shared {
    pub(super) plan: Plan,
    /// Length of the parts handed over.
    pub(super) interval: Duration,
    pub(super) stage: watch::Sender<Stage>,
    /// Set together with [`Stage::Stopping`], for the hot path.
    pub(super) stop: AtomicBool,
    /// Number of the next request, where numbers are dense.
    pub(super) next_number: AtomicU64,
    /// The first number that is not made any more.
    pub(super) number_end: AtomicU64,
    /// Takes a row a request, where somebody wants them.
    pub(super) rows: Option<RowSink>,
}

/// What a worker tells the coordinator.
pub(super) enum Message {
    /// Its connections are open, or one is not.
    Opened(anyhow::Result<()>),
    /// What it saw in an interval.
    Part { interval: usize, span: Duration, part: Box<Part> },
    /// It is done.
    Done(Box<Done>),
    /// It cannot go on.
    Broken(anyhow::Error),
}

/// A worker's last word.
#[derive(Default)]
pub(super) struct Done {
    pub(super) usage: Usage,
    /// The time that `usage` is of.
    pub(super) watched: Duration,
    pub(super) traffic: Traffic,
    pub(super) finishes: Vec<Finish>,
    pub(super) rows_lost: u64,
}

/// The thread's body.
pub(super) fn work<W: Workload>(
    shared: &Arc<Shared>,
    workload: &W,
    number: usize,
    messages: &mpsc::UnboundedSender<Message>,
) {
    if let Some(cores) = &shared.plan.cores {
        // A core that may not be used is no reason not to measure.
        drop(usage::pin_to(cores[number % cores.len()]));
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

/// This worker's connections, by their numbers.
async fn open<W: Workload>(
    shared: &Shared,
    workload: &W,
    number: usize,
) -> anyhow::Result<Vec<(usize, Rc<W::Session>)>> {
    let mut sessions = Vec::new();
    for connection in (number..shared.plan.connections).step_by(shared.plan.workers) {
        sessions.push((connection, Rc::new(workload.open(connection).await?)));
    }
    Ok(sessions)
}

struct Worker {
    shared: Arc<Shared>,
    number: usize,
    messages: mpsc::UnboundedSender<Message>,
}

/// What the tasks of a worker share.
struct Desk {
    shared: Arc<Shared>,
    recorder: RefCell<Recorder>,
    patience: Patience,
    window: Window,
    worker: u32,
    /// Requests this worker made, for numbers that need not be dense.
    made: Cell<u64>,
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
        let desk = Rc::new(Desk {
            shared: Arc::clone(&self.shared),
            recorder: RefCell::new(Recorder::new(window, self.shared.rows.clone())),
            patience: Patience::new(plan.timeout, slots),
            window,
            worker: u32::try_from(self.number)?,
            made: Cell::new(0),
        });
        let mut tasks = JoinSet::new();
        match &plan.pace {
            Pace::Closed { ramp_up } => spawn_closed(&mut tasks, &desk, &sessions, began, *ramp_up),
            Pace::Open { arrivals, profile } => {
                let profile = profile.clone().preceded_by(plan.warm_up.as_secs_f64());
                let due = DueTimes::new(profile, *arrivals, self.number, plan.workers, plan.seed);
                let sessions = sessions.iter().map(|(_, session)| Rc::clone(session)).collect();
                let (desk, timer) = (Rc::clone(&desk), Timer::new()?);
                tasks.spawn_local(async move { open_loop(&desk, &timer, due, began, sessions).await });
            }
        }
        let traffic = || total(sessions.iter().map(|(_, session)| session.traffic()));
        self.watch(&desk, &mut tasks, traffic).await
    }

    /// Hands over what was seen at the end of every interval, until the tasks are done or cut.
    async fn watch(
        &self,
        desk: &Desk,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        traffic: impl Fn() -> Traffic,
    ) -> anyhow::Result<()> {
        let mut stage = self.shared.stage.subscribe();
        let mut keeping = std::pin::pin!(desk.patience.keep());
        let begin = tokio::time::Instant::from_std(desk.window.begin);
        let mut ticks = tokio::time::interval_at(begin, self.shared.interval);
        let mut first = None;
        let mut last: Option<(Usage, Instant, Traffic)> = None;
        let mut part_began = desk.window.begin;
        for interval in 0.. {
            let is_over = loop {
                tokio::select! {
                    biased;
                    _ = ticks.tick() => break false,
                    ended = tasks.join_next() => match ended {
                        None => break true,
                        Some(ended) => ended??,
                    },
                    cut = stage.wait_for(|stage| *stage == Stage::Cut) => { drop(cut); break true },
                    () = &mut keeping => {}
                }
            };
            let now = Instant::now();
            // Beyond the window there is only waiting, which is nobody's work.
            if last.is_none_or(|(_, at, _)| !desk.window.has_ended(at)) {
                last = Some((Usage::of_this_thread(), now, traffic()));
            }
            first = first.or(last);
            if interval > 0 || is_over {
                let part = Box::new(desk.recorder.borrow_mut().take());
                let span = now.saturating_duration_since(part_began);
                let _ = self.messages.send(Message::Part { interval: interval.max(1) - 1, span, part });
            }
            part_began = now.max(desk.window.begin);
            if is_over {
                break;
            }
        }
        let (Some(first), Some(last)) = (first, last) else { return Ok(()) };
        let mut recorder = desk.recorder.borrow_mut();
        let done = Done {
            usage: last.0.since(first.0),
            watched: last.1 - first.1,
            traffic: Traffic {
                sent_bytes: last.2.sent_bytes - first.2.sent_bytes,
                received_bytes: last.2.received_bytes - first.2.received_bytes,
            },
            finishes: recorder.take_finishes(),
            rows_lost: recorder.finish_rows(),
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

impl Desk {
    /// The number of the next request; none when there is to be no further one.
    #[inline]
    fn next_number(&self) -> Option<u64> {
        if self.shared.stop.load(Ordering::Relaxed) {
            return None;
        }
        if let End::Count(_) = self.shared.plan.end {
            let number = self.shared.next_number.fetch_add(1, Ordering::Relaxed);
            return (number < self.shared.number_end.load(Ordering::Relaxed)).then_some(number);
        }
        let made = self.made.get();
        self.made.set(made + 1);
        Some(made * self.shared.plan.workers as u64 + u64::from(self.worker))
    }

    /// Makes a request and records it; returns when it was done.
    #[inline]
    async fn make<S: Session>(&self, session: &S, slot: usize, asked: Asked, asked_at: Instant) -> Instant {
        let turn = Turn { number: asked.number, client: asked.client, worker: self.worker };
        let answer = self.patience.within(slot, session.request(turn)).await.unwrap_or_else(|| Answer {
            sent_at: asked_at,
            first_byte_at: None,
            done_at: Instant::now(),
            ending: Ending { number: TIMED_OUT, is_error: true },
        });
        self.recorder.borrow_mut().record(asked, &answer);
        answer.done_at
    }
}

fn spawn_closed<S: Session>(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    desk: &Rc<Desk>,
    sessions: &[(usize, Rc<S>)],
    began: Instant,
    ramp_up: Duration,
) {
    let plan = &desk.shared.plan;
    let clients = plan.connections * plan.in_flight;
    let slots = (0..plan.in_flight).flat_map(|position| sessions.iter().map(move |session| (position, session)));
    for (slot, (position, (connection, session))) in slots.enumerate() {
        let client = connection * plan.in_flight + position;
        let (desk, session) = (Rc::clone(desk), Rc::clone(session));
        let share = u32::try_from(client).unwrap_or(u32::MAX);
        let begins_at = began + ramp_up / u32::try_from(clients).unwrap_or(u32::MAX) * share;
        tasks.spawn_local(async move {
            tokio::time::sleep_until(begins_at.into()).await;
            let mut at = Instant::now();
            for turn in 0.. {
                let Some(number) = desk.next_number() else { break };
                let asked = Asked { number, client: share, turn, due_at: None };
                at = desk.make(&*session, slot, asked, at).await;
                if desk.window.has_ended(at) {
                    break;
                }
            }
            Ok(())
        });
    }
}

/// Places for requests of an open loop: each belongs to a connection.
struct Places {
    free: RefCell<VecDeque<usize>>,
    freed: Notify,
}

async fn open_loop<S: Session>(
    desk: &Rc<Desk>,
    timer: &Timer,
    due_times: DueTimes,
    began: Instant,
    sessions: Vec<Rc<S>>,
) -> anyhow::Result<()> {
    // Connections take turns: the places of one are a whole round apart.
    let slots = sessions.len() * desk.shared.plan.in_flight;
    let places = Rc::new(Places { free: RefCell::new((0..slots).collect()), freed: Notify::new() });
    let mut requests = JoinSet::new();
    let mut now = Instant::now();
    for (turn, due) in (0..).zip(due_times) {
        let due_at = began + Duration::from_secs_f64(due.min(86_400.0 * 365.0));
        if desk.window.has_ended(due_at) {
            break;
        }
        if due_at > now {
            wait(desk, timer, due_at).await?;
            now = Instant::now();
        }
        let slot = loop {
            let free = places.free.borrow_mut().pop_front();
            if let Some(slot) = free {
                break slot;
            }
            places.freed.notified().await;
            now = Instant::now();
        };
        let Some(number) = desk.next_number() else { break };
        let session = Rc::clone(&sessions[slot % sessions.len()]);
        let (desk, places) = (Rc::clone(desk), Rc::clone(&places));
        let asked = Asked { number, client: u32::try_from(slot)?, turn, due_at: Some(due_at) };
        requests.spawn_local(async move {
            desk.make(&*session, slot, asked, now).await;
            places.free.borrow_mut().push_back(slot);
            places.freed.notify_one();
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

/// Until a time, or until the run is stopped.
async fn wait(desk: &Desk, timer: &Timer, until: Instant) -> anyhow::Result<()> {
    let mut stage = desk.shared.stage.subscribe();
    tokio::select! {
        biased;
        fired = timer.until(until) => fired?,
        stopping = stage.wait_for(|stage| !matches!(stage, Stage::Running(_))) => drop(stopping),
    }
    Ok(())
}
