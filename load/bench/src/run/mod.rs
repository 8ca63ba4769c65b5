//! Performs a run: starts the workers, watches the time, and combines their results.
//!
//! [`crate::verdict`] judges the figures.

mod series;
mod state;
mod usage;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use self::series::Series;
use self::state::{Shared, Stage, until};
use self::usage::{MachineTimes, Shares};
use self::worker::{Done, Message};
use crate::measurement::{Finish, Run, Verdict};
use crate::plan::{End, Pace, Plan};
use crate::recorder::{self, CUT, NOT_SENT, Part};
use crate::report::csv::RowSink;
use crate::report::units::float;
use crate::verdict::{self, Seen};
use crate::workload::Workload;

/// Time that an interrupted run waits for its requests in flight.
const GRACE: Duration = Duration::from_secs(2);

/// Time after the measured period at which a missed rate ends the run: all answers in time are counted by then.
const VERDICT_DELAY: Duration = Duration::from_secs(1);

/// Intervals that a run is divided into.
const INTERVALS: u32 = 60;

#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since measuring began.
    pub elapsed: Duration,
    pub end: End,
    /// Requests measured so far.
    pub requests: u64,
    pub errors: u64,
    /// Requests a second in the last interval.
    pub rate: f64,
    /// Median response time of the last interval.
    pub p50_us: f64,
    /// 99th percentile of the last interval.
    pub p99_us: f64,
}

/// Observer of a run, called on the thread that called [`run`].
pub trait Watch {
    /// Called when measuring begins, after the warm-up.
    fn began(&mut self) {}
    /// Called a few times a second.
    fn progress(&mut self, _: &Progress) {}
    /// Called when the measured time is over; requests that were due in it may still be in flight.
    fn measured(&mut self) {}
    /// Called when the last request has ended.
    fn ended(&mut self) {}
}

/// Observes nothing.
impl Watch for () {}

/// Performs a run; blocks until its end.
pub fn run<W: Workload>(plan: &Plan, workload: &W, watch: &mut dyn Watch) -> anyhow::Result<Run> {
    run_with_rows(plan, workload, watch, None)
}

/// Like [`run`], with a row per request for `rows`.
pub(crate) fn run_with_rows<W: Workload>(
    plan: &Plan,
    workload: &W,
    watch: &mut dyn Watch,
    rows: Option<RowSink>,
) -> anyhow::Result<Run> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let (sender, messages) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        interval: interval(plan),
        stage: watch::Sender::new(Stage::Opening),
        stop: AtomicBool::new(false),
        next_number: AtomicU64::new(0),
        number_end: AtomicU64::new(u64::MAX),
        rows,
    });
    let workers = (0..plan.workers)
        .map(|number| {
            let (shared, workload, sender) = (Arc::clone(&shared), workload.clone(), sender.clone());
            std::thread::Builder::new()
                .name(format!("load-{number}"))
                .spawn(move || worker::work(&shared, &workload, number, &sender))
                .context("cannot start a thread")
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    drop(sender);
    let mut coordinator = Coordinator {
        shared: Arc::clone(&shared),
        messages,
        watch,
        total: Part::default(),
        series: Series::new(plan.workers),
        done: Vec::new(),
        began: None,
        shares: None,
        cut_at: None,
        is_certain: false,
    };
    let done = runtime.block_on(coordinator.run());
    // If one worker failed, the others must end.
    shared.stop.store(true, Ordering::Relaxed);
    shared.stage.send_replace(Stage::Cut);
    for worker in workers {
        if worker.join().is_err() {
            bail!("a worker thread panicked; its message is above");
        }
    }
    done?;
    Ok(coordinator.finish(workload))
}

/// Length of an interval: short enough to show changes, long enough to cost nothing.
fn interval(plan: &Plan) -> Duration {
    match plan.end {
        End::After(duration) => (duration / INTERVALS).clamp(Duration::from_millis(50), Duration::from_secs(1)),
        End::Count(_) => Duration::from_millis(100),
    }
}

struct Coordinator<'a> {
    shared: Arc<Shared>,
    messages: mpsc::UnboundedReceiver<Message>,
    watch: &'a mut dyn Watch,
    total: Part,
    series: Series,
    done: Vec<Done>,
    began: Option<(Instant, SystemTime, MachineTimes)>,
    /// Shares of the machine's time, once measuring has ended.
    shares: Option<Shares>,
    /// Set on interrupt: the time at which requests in flight are given up.
    cut_at: Option<Instant>,
    /// Set when the run ends because its verdict is certain.
    is_certain: bool,
}

impl Coordinator<'_> {
    async fn run(&mut self) -> anyhow::Result<()> {
        // From now on the signal no longer ends the process.
        let mut interrupt = signal(SignalKind::interrupt())?;
        for _ in 0..self.shared.plan.workers {
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(Message::Opened(opened)) => opened?,
                    _ => bail!("a worker thread ended before the run began"),
                },
                _ = interrupt.recv() => bail!("the run was interrupted before anything was measured"),
            }
        }
        let now = Instant::now();
        let begin = now + self.shared.plan.warm_up;
        if self.shared.plan.warm_up.is_zero() {
            self.begin(begin);
        }
        self.shared.stage.send_replace(Stage::Running(now));
        let mut warm = std::pin::pin!(tokio::time::sleep_until(begin.into()));
        let window_end = match self.shared.plan.end {
            End::After(duration) => Some(begin + duration),
            End::Count(_) => None,
        };
        let verdict_at = window_end.map(|end| end + VERDICT_DELAY);
        let (mut is_cut, mut is_judged) = (false, false);
        loop {
            let (cut_at, is_measured) = (self.cut_at, self.shares.is_some());
            tokio::select! {
                message = self.messages.recv() => match message {
                    None => {
                        self.end_measuring();
                        self.watch.ended();
                        return Ok(());
                    }
                    Some(message) => self.take(message)?,
                },
                () = &mut warm, if self.began.is_none() => self.begin(begin),
                () = until(window_end), if !is_measured => self.end_measuring(),
                () = until(verdict_at), if !is_judged && cut_at.is_none() => {
                    is_judged = true;
                    if verdict::is_rate_missed(&self.shared.plan, self.total.completed) {
                        self.is_certain = true;
                        self.stop();
                    }
                }
                _ = interrupt.recv(), if cut_at.is_none() || self.is_certain => {
                    self.is_certain = false;
                    self.stop();
                }
                () = until(cut_at), if cut_at.is_some() && !is_cut => {
                    is_cut = true;
                    self.shared.stage.send_replace(Stage::Cut);
                }
            }
        }
    }

    fn begin(&mut self, begin: Instant) {
        self.began = Some((begin, SystemTime::now(), MachineTimes::now(self.cores().as_deref())));
        if let End::Count(count) = self.shared.plan.end {
            let made = self.shared.next_number.load(Ordering::Relaxed);
            self.shared.number_end.store(made.saturating_add(count), Ordering::Relaxed);
        }
        self.watch.began();
    }

    /// Cores that workers are pinned to, if any.
    fn cores(&self) -> Option<Vec<usize>> {
        let plan = &self.shared.plan;
        plan.cores.as_ref().map(|cores| cores.iter().copied().take(plan.workers).collect())
    }

    fn end_measuring(&mut self) {
        if let (None, Some((_, _, times))) = (self.shares, self.began) {
            self.shares = Some(MachineTimes::now(self.cores().as_deref()).since(times));
            self.watch.measured();
        }
    }

    fn stop(&mut self) {
        self.cut_at = Some(Instant::now() + GRACE);
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.stage.send_replace(Stage::Stopping);
    }

    fn take(&mut self, message: Message) -> anyhow::Result<()> {
        match message {
            Message::Opened(opened) => opened,
            Message::Broken(error) => Err(error),
            Message::Done(done) => {
                self.done.push(*done);
                Ok(())
            }
            Message::Part { interval, span, part } => {
                self.total.add(&part);
                if let Some(ended) = self.series.add(interval, span, part) {
                    let plan = &self.shared.plan;
                    let progress = Progress {
                        elapsed: self.began.map_or(Duration::ZERO, |(begin, ..)| begin.elapsed()),
                        end: plan.end,
                        requests: self.total.response.count(),
                        errors: self.total.errors,
                        rate: float(ended.requests) / ended.seconds.max(1e-9),
                        p50_us: ended.p50_us,
                        p99_us: ended.p99_us,
                    };
                    self.watch.progress(&progress);
                }
                Ok(())
            }
        }
    }

    fn finish<W: Workload>(self, workload: &W) -> Run {
        let plan = &self.shared.plan;
        let now = (Instant::now(), SystemTime::now(), MachineTimes::default());
        let (begin, began_at, _) = self.began.unwrap_or(now);
        let interrupted = self.cut_at.is_some() && !self.is_certain;
        let Part { response, service, lag, first_byte, endings, errors, completed, last_done_at, .. } = self.total;
        let until_last = last_done_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(begin));
        let seconds = match plan.end {
            End::After(duration) if !interrupted => duration,
            _ => until_last,
        }
        .as_secs_f64();
        let is_closed = lag.count() == 0;
        let not_sent = endings.get(usize::from(NOT_SENT)).copied().unwrap_or(0);
        let endings = endings.iter().enumerate().filter(|(_, count)| **count > 0).map(|(number, count)| {
            let number = u16::try_from(number).unwrap_or(CUT);
            (recorder::label(workload, number), *count)
        });
        let lag_by_time = self.series.lags();
        let due = |from: f64, to: f64| match &plan.pace {
            Pace::Open { profile, .. } => profile.due_between(from.min(seconds), to.min(seconds)),
            Pace::Closed => 0.0,
        };
        let mut run = Run {
            began_unix_ms: began_at
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            seconds,
            requests: response.count(),
            sent: response.count() - not_sent,
            errors,
            completed,
            rate: if seconds > 0.0 { float(completed) / seconds } else { 0.0 },
            endings: endings.collect(),
            service: if is_closed { response.clone() } else { service },
            response,
            lag,
            first_byte,
            sent_bytes: self.done.iter().map(|done| done.traffic.sent_bytes).sum(),
            received_bytes: self.done.iter().map(|done| done.traffic.received_bytes).sum(),
            // Scales the share of the watched time to the measured time; they differ by the delay of a timer.
            client_cpu_seconds: self.done.iter().map(|done| done.share(done.usage.running) * seconds).sum(),
            client_busy_max: share_max(&self.done, |done| done.usage.running),
            client_waiting_max: share_max(&self.done, |done| done.usage.waiting),
            server: None,
            verdict: Verdict::default(),
            series: self.series.finish(due),
            interrupted,
            finishes: Vec::new(),
        };
        let shares = self.shares.unwrap_or_default();
        run.verdict = verdict::judge(&Seen {
            plan,
            run: &run,
            stolen: shares.stolen,
            others: shares.others,
            lag_by_time,
            rows_lost: self.shared.rows.as_ref().map_or(0, RowSink::lost),
        });
        run.finishes = thinned(self.done.into_iter().flat_map(|done| done.finishes).collect());
        run
    }
}

impl Done {
    /// Share of the watched time, at most 1.
    fn share(&self, of: Duration) -> f64 {
        (of.as_secs_f64() / self.watched.as_secs_f64().max(1e-9)).min(1.0)
    }
}

fn share_max(done: &[Done], of: impl Fn(&Done) -> Duration) -> f64 {
    done.iter().map(|done| done.share(of(done))).fold(0.0, f64::max)
}

/// Maximum finishes in a report.
const FINISHES_MAX: usize = 10_000;

fn thinned(mut finishes: Vec<Finish>) -> Vec<Finish> {
    finishes.sort_by(|one, other| one.at_seconds.total_cmp(&other.at_seconds));
    let stride = finishes.len().div_ceil(FINISHES_MAX).max(1);
    finishes.into_iter().step_by(stride).collect()
}
