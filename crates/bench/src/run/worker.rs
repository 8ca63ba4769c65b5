//! One worker: a thread with its own connections, which makes requests when they are due and records them.
//!
//! Must not know other workers but through [`Shared`]: which number the next request has, and when to stop.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};

use super::open_loop;
use super::patience::Patience;
use super::timer::Timer;
use super::usage::{self, Usage};
use crate::plan::{End, Pace, Plan};
use crate::recorder::{Asked, CUT, Part, Recorder, TIMED_OUT, Window};
use crate::report::csv::RowSink;
use crate::report::model::Finish;
use crate::schedule::DueTimes;
use crate::workload::socket::CONNECT_TIME_MAX;
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
    /// Requests under way are given up.
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
    /// Takes a row for each request, if rows are written.
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
        // Without pinning the run is still a measurement.
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

/// What the tasks of a worker share.
pub(super) struct Desk {
    pub(super) shared: Arc<Shared>,
    pub(super) recorder: RefCell<Recorder>,
    pub(super) patience: Patience,
    pub(super) window: Window,
    /// When the last request under way is given up: all that were due in the window have had the timeout by then.
    gives_up_at: Option<Instant>,
    worker: u32,
    /// Requests this worker made, for numbers that need not be dense.
    made: Cell<u64>,
}

/// What a worker and its connections had used at some time.
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
        let desk = Rc::new(Desk {
            shared: Arc::clone(&self.shared),
            recorder: RefCell::new(Recorder::new(window, self.shared.rows.clone())),
            // One slot more, for the wait for a free place.
            patience: Patience::new(plan.timeout, slots + 1),
            window,
            gives_up_at: window.end.map(|end| end + plan.timeout),
            worker: u32::try_from(self.number)?,
            made: Cell::new(0),
        });
        let mut tasks = JoinSet::new();
        match &plan.pace {
            Pace::Closed { ramp_up } => spawn_closed(&mut tasks, &desk, &sessions, began, *ramp_up),
            Pace::Open { arrivals, profile } => {
                let profile = profile.clone().preceded_by(plan.warm_up.as_secs_f64());
                let due = DueTimes::new(profile, *arrivals, self.number, plan.workers, plan.seed);
                let (desk, timer, sessions) = (Rc::clone(&desk), Timer::new()?, sessions.clone());
                tasks.spawn_local(async move { open_loop::run(&desk, &timer, due, began, sessions).await });
            }
        }
        let traffic = || total(sessions.iter().map(|(_, session)| session.traffic()));
        self.watch(&desk, &mut tasks, traffic).await
    }

    /// Hands over what was seen at the end of every interval, until the tasks are done.
    async fn watch(
        &self,
        desk: &Desk,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        traffic: impl Fn() -> Traffic,
    ) -> anyhow::Result<()> {
        let sample = || Sample { usage: Usage::of_this_thread(), at: Instant::now(), traffic: traffic() };
        let mut stage = self.shared.stage.subscribe();
        let mut keeping = std::pin::pin!(desk.patience.keep());
        let begin = tokio::time::Instant::from_std(desk.window.begin);
        let mut ticks = tokio::time::interval_at(begin, self.shared.interval);
        let mut window_end = std::pin::pin!(until(desk.window.end));
        let (mut first, mut last) = (None, None);
        let mut part_began = desk.window.begin;
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
                    cut = stage.wait_for(|stage| *stage == Stage::Cut), if !desk.patience.is_cut() => {
                        drop(cut);
                        desk.patience.cut();
                    }
                    () = &mut keeping => {}
                }
            };
            let now = Instant::now();
            first = first.or_else(|| Some(sample()));
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
        let (first, last) = (first.unwrap_or_else(sample), last.unwrap_or_else(sample));
        let mut recorder = desk.recorder.borrow_mut();
        let done = Done {
            usage: last.usage.since(first.usage),
            watched: last.at.saturating_duration_since(first.at),
            traffic: Traffic {
                sent_bytes: last.traffic.sent_bytes.saturating_sub(first.traffic.sent_bytes),
                received_bytes: last.traffic.received_bytes.saturating_sub(first.traffic.received_bytes),
            },
            finishes: recorder.take_finishes(),
            rows_lost: recorder.finish_rows(),
        };
        let _ = self.messages.send(Message::Done(Box::new(done)));
        Ok(())
    }
}

/// Waits until a time; without one, for ever.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn total(traffic: impl Iterator<Item = Traffic>) -> Traffic {
    traffic.fold(Traffic::default(), |sum, one| Traffic {
        sent_bytes: sum.sent_bytes + one.sent_bytes,
        received_bytes: sum.received_bytes + one.received_bytes,
    })
}

impl Desk {
    /// Whether no further request is to be made.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// The number of the next request; none if the run has all that it is to count.
    #[inline]
    pub(super) fn next_number(&self) -> Option<u64> {
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
    pub(super) async fn make<S: Session>(&self, session: &S, slot: usize, asked: Asked, asked_at: Instant) -> Instant {
        let turn = Turn { number: asked.number, client: asked.client, worker: self.worker };
        let until = asked_at + self.shared.plan.timeout;
        let until = self.gives_up_at.map_or(until, |last| until.min(last));
        let answer = self.patience.within(slot, until, session.request(turn)).await.unwrap_or_else(|| Answer {
            sent_at: asked_at,
            first_byte_at: None,
            done_at: Instant::now(),
            ending: Ending { number: if self.patience.is_cut() { CUT } else { TIMED_OUT }, is_error: true },
        });
        self.recorder.borrow_mut().record(asked, &answer);
        answer.done_at
    }

    /// Waits until a time, or until the run is stopped.
    pub(super) async fn wait(&self, wake: impl Future<Output = std::io::Result<()>>) -> anyhow::Result<()> {
        let mut stage = self.shared.stage.subscribe();
        tokio::select! {
            biased;
            woken = wake => woken?,
            stopping = stage.wait_for(|stage| !matches!(stage, Stage::Running(_))) => drop(stopping),
        }
        Ok(())
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
            let begin = async {
                tokio::time::sleep_until(begins_at.into()).await;
                Ok(())
            };
            desk.wait(begin).await?;
            let mut at = Instant::now();
            for turn in 0.. {
                if desk.is_stopped() {
                    break;
                }
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
