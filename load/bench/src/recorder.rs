//! Results of one worker: histograms, endings and a thinned list of finishes, handed over in parts.
//!
//! A request is measured if it was due (in a closed loop: sent) within the window, however late its answer came, so
//! that slow requests are not left out at the end; the rate counts the answers within the window. Every measured
//! request has one ending, so sent = answered + timed out + cut, and due = sent + not sent.
//!
//! Has no clock: times come with the requests. Never shared between threads, so nothing is locked; a part handed over
//! is replaced by an empty one.

use std::time::{Duration, Instant};

use crate::measurement::{Distribution, Finish};
use crate::report::csv::{BATCH_ROWS, Row, RowSink};
use crate::workload::{Answer, ENDINGS_MAX, Ending, Workload};

/// Ending of requests sent and not answered within the timeout.
pub(crate) const TIMED_OUT: u16 = ENDINGS_MAX;
/// Ending of requests that were due and found no free slot on a connection within the timeout.
pub(crate) const NOT_SENT: u16 = ENDINGS_MAX + 1;
/// Ending of requests in flight when the run was interrupted.
pub(crate) const CUT: u16 = ENDINGS_MAX + 2;

/// Label of an ending, the workload's or the recorder's own.
pub(crate) fn label<W: Workload>(workload: &W, ending: u16) -> String {
    match ending {
        TIMED_OUT => "timeout".to_owned(),
        NOT_SENT => "not sent".to_owned(),
        CUT => "interrupted".to_owned(),
        _ => workload.label(ending),
    }
}

/// Finishes that a worker keeps; beyond, every other one is dropped.
const FINISHES_MAX: usize = 20_000;

/// Requests measured in a stretch of time.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// Due (closed loop: sent) to done, in nanoseconds.
    pub(crate) response: Distribution,
    pub(crate) service: Distribution,
    /// Due to sent; empty in a closed loop.
    pub(crate) lag: Distribution,
    pub(crate) first_byte: Distribution,
    pub(crate) endings: Vec<u64>,
    pub(crate) errors: u64,
    /// Answers within the window.
    pub(crate) completed: u64,
    /// Answers since the window began, including those after its end.
    pub(crate) answered: u64,
    /// Response times of requests that were due before the window and ended in it: shown over time, but not measured.
    pub(crate) early: Option<Box<Distribution>>,
    /// End of the last measured request.
    pub(crate) last_done_at: Option<Instant>,
}

impl Part {
    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.response, &other.response),
            (&mut self.service, &other.service),
            (&mut self.lag, &other.lag),
            (&mut self.first_byte, &other.first_byte),
        ];
        for (into, from) in pairs {
            into.add(from);
        }
        if self.endings.len() < other.endings.len() {
            self.endings.resize(other.endings.len(), 0);
        }
        for (into, from) in self.endings.iter_mut().zip(&other.endings) {
            *into += from;
        }
        self.errors += other.errors;
        self.completed += other.completed;
        self.answered += other.answered;
        if let Some(early) = &other.early {
            self.early.get_or_insert_default().add(early);
        }
        self.last_done_at = self.last_done_at.max(other.last_done_at);
    }
}

/// The measured time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) begin: Instant,
    /// First instant after it; `None` if a count of requests ends the run.
    pub(crate) end: Option<Instant>,
}

impl Window {
    /// True if the instant is in the window.
    #[inline]
    pub(crate) fn contains(&self, at: Instant) -> bool {
        at >= self.begin && !self.has_ended(at)
    }

    /// True if the window is over at the instant.
    #[inline]
    pub(crate) fn has_ended(&self, at: Instant) -> bool {
        self.end.is_some_and(|end| at >= end)
    }
}

/// Client and due time of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheduled {
    pub(crate) number: u64,
    /// Client number; in an open loop, connection number.
    pub(crate) client: u32,
    /// Number among the client's requests; in an open loop, among the worker's.
    pub(crate) turn: u64,
    /// Due time; `None` in a closed loop, where a request is due when it is sent.
    pub(crate) due_at: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Recorder {
    window: Window,
    part: Part,
    finishes: Vec<Finish>,
    finishes_stride: u64,
    finishes_seen: u64,
    rows: Option<(RowSink, Vec<Row>)>,
}

impl Recorder {
    pub(crate) fn new(window: Window, rows: Option<RowSink>) -> Self {
        Self {
            window,
            part: Part::default(),
            finishes: Vec::new(),
            finishes_stride: 1,
            finishes_seen: 0,
            rows: rows.map(|sink| (sink, Vec::with_capacity(BATCH_ROWS))),
        }
    }

    /// Records a finished request; returns true if it is measured.
    #[inline]
    pub(crate) fn record(&mut self, scheduled: Scheduled, answer: &Answer) -> bool {
        let Answer { sent_at, first_byte_at, done_at, ending } = *answer;
        let began_at = scheduled.due_at.unwrap_or(sent_at);
        let response = nanos(done_at, began_at);
        if ending.number < ENDINGS_MAX {
            self.part.completed += u64::from(self.window.contains(done_at));
            self.part.answered += u64::from(done_at >= self.window.begin);
        }
        if !self.window.contains(began_at) {
            if self.window.contains(done_at) {
                self.part.early.get_or_insert_default().histogram.saturating_record(response);
            }
            return false;
        }
        self.part.response.histogram.saturating_record(response);
        if scheduled.due_at.is_some() {
            self.part.service.histogram.saturating_record(nanos(done_at, sent_at));
            self.part.lag.histogram.saturating_record(nanos(sent_at, began_at));
        }
        if let Some(first_byte_at) = first_byte_at {
            self.part.first_byte.histogram.saturating_record(nanos(first_byte_at, sent_at));
        }
        self.count_ending(ending, done_at);
        self.keep_finish(scheduled, response, done_at);
        if self.rows.is_some() {
            self.keep_row(Row {
                number: scheduled.number,
                client: Some(scheduled.client),
                scheduled_ns: nanos(began_at, self.window.begin),
                sent_ns: Some(nanos(sent_at, self.window.begin)),
                first_byte_ns: first_byte_at.map(|at| nanos(at, self.window.begin)),
                done_ns: nanos(done_at, self.window.begin),
                ending: ending.number,
            });
        }
        true
    }

    /// Records a request that was due at `due_at` and given up unsent at `done_at`: its response time and its send lag
    /// are at least the time between.
    pub(crate) fn record_not_sent(&mut self, number: u64, due_at: Instant, done_at: Instant) {
        if !self.window.contains(due_at) {
            return;
        }
        let waited = nanos(done_at, due_at);
        self.part.response.histogram.saturating_record(waited);
        self.part.lag.histogram.saturating_record(waited);
        self.count_ending(Ending { number: NOT_SENT, is_error: true }, done_at);
        if self.rows.is_some() {
            self.keep_row(Row {
                number,
                scheduled_ns: nanos(due_at, self.window.begin),
                done_ns: nanos(done_at, self.window.begin),
                ending: NOT_SENT,
                ..Row::default()
            });
        }
    }

    #[inline]
    fn count_ending(&mut self, ending: Ending, done_at: Instant) {
        let number = usize::from(ending.number.min(CUT));
        if self.part.endings.len() <= number {
            self.part.endings.resize(number + 1, 0);
        }
        self.part.endings[number] += 1;
        self.part.errors += u64::from(ending.is_error);
        self.part.last_done_at = Some(done_at);
    }

    #[inline]
    fn keep_finish(&mut self, scheduled: Scheduled, response: u64, done_at: Instant) {
        self.finishes_seen += 1;
        if !(self.finishes_seen - 1).is_multiple_of(self.finishes_stride) {
            return;
        }
        if self.finishes.len() == FINISHES_MAX {
            let mut index = 0;
            self.finishes.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.finishes_stride *= 2;
        }
        let at = done_at.saturating_duration_since(self.window.begin);
        let response = Duration::from_nanos(response);
        self.finishes.push(Finish {
            client: scheduled.client,
            turn: scheduled.turn,
            at_seconds: at.as_secs_f64(),
            response_us: response.as_secs_f64() * 1e6,
        });
    }

    fn keep_row(&mut self, row: Row) {
        let Some((_, rows)) = &mut self.rows else { return };
        rows.push(row);
        if rows.len() == BATCH_ROWS {
            self.hand_over_rows();
        }
    }

    /// Hands over the rows that were kept since the last time.
    pub(crate) fn hand_over_rows(&mut self) {
        let Some((sink, rows)) = &mut self.rows else { return };
        sink.push_batch(std::mem::replace(rows, Vec::with_capacity(BATCH_ROWS)));
    }

    pub(crate) fn take(&mut self) -> Part {
        std::mem::take(&mut self.part)
    }

    pub(crate) fn take_finishes(&mut self) -> Vec<Finish> {
        std::mem::take(&mut self.finishes)
    }
}

#[inline]
fn nanos(later: Instant, earlier: Instant) -> u64 {
    u64::try_from(later.saturating_duration_since(earlier).as_nanos()).unwrap_or(u64::MAX)
}
