//! The log of calls and of HTTP requests: a line for each that ended and is wanted, up to a number a second; those left
//! out are counted.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use hosting::PerSecond;
use quire_rpc::{
    Code,
    server::{CallDetails, CallReport},
};

/// Target of the lines, which the log's own bound does not apply to.
pub(super) const TARGET: &str = "quire::calls";
/// Longest request id in a line.
const ID_CHARS_MAX: usize = 64;
/// Longest method and path of an HTTP request in a line.
const METHOD_CHARS_MAX: usize = 256;
/// Shortest part of a call's time in a line, which has microseconds.
const SHOWN_MIN: Duration = Duration::from_micros(1);
/// Interval at which the number of lines left out is logged.
const INTERVAL: Duration = Duration::from_secs(1);

/// Calls to log by their outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcomes {
    None,
    Failures,
    All,
}

/// Settings of the log of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Calls {
    pub outcomes: Outcomes,
    /// Share of the calls that are logged, of those that neither fail nor are slow.
    pub sample: f64,
    /// Calls that take as long are logged with any outcome; 0 for none.
    pub slower_than: Duration,
    /// Lines a second.
    pub per_second: u32,
}

impl Calls {
    /// The log.
    pub(crate) fn log(self) -> Arc<CallLog> {
        let (written, left_out, is_on) = Default::default();
        let log = CallLog { calls: ArcSwap::from_pointee(self), is_on, written, left_out };
        log.set(self);
        Arc::new(log)
    }

    /// True if a call is logged; `chance` is from 0 to 1.
    fn want(&self, failed: bool, elapsed: Duration, chance: f64) -> bool {
        let by_outcome = match self.outcomes {
            Outcomes::None => false,
            Outcomes::Failures => failed,
            Outcomes::All => failed || chance < self.sample,
        };
        by_outcome || self.is_slow(elapsed)
    }

    fn is_slow(&self, elapsed: Duration) -> bool {
        !self.slower_than.is_zero() && elapsed >= self.slower_than
    }
}

/// An HTTP request that is no call: of a page or over REST.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpReport<'a> {
    /// Method and path.
    pub method: &'a str,
    /// `None` if the client left before the answer began.
    pub status: Option<u16>,
    pub elapsed: Duration,
    /// Part of it that waited for commits.
    pub committing: Duration,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub peer: Option<SocketAddr>,
    pub credential: Option<&'a str>,
    pub request_id: Option<&'a [u8]>,
    pub trace_id: Option<[u8; 16]>,
}

/// The log.
#[derive(Debug)]
pub(crate) struct CallLog {
    calls: ArcSwap<Calls>,
    /// True while calls are logged.
    pub(crate) is_on: Arc<AtomicBool>,
    written: PerSecond,
    left_out: AtomicU64,
}

impl CallLog {
    /// Changes the settings.
    pub(crate) fn set(&self, calls: Calls) {
        self.calls.store(Arc::new(calls));
        self.is_on.store(calls.outcomes != Outcomes::None || !calls.slower_than.is_zero(), Relaxed);
    }

    /// Logs a call, if it is wanted and there is room in this second.
    pub(crate) fn ended(&self, call: &CallReport<'_>, details: &CallDetails<'_>) {
        let Some(part) = self.takes(call.code != Code::Ok, call.elapsed) else { return };
        let times = &details.times;
        tracing::info!(
            target: TARGET,
            method = call.path,
            code = ?call.code,
            time_ms = milliseconds(call.elapsed),
            queue_ms = part(times.queued),
            handler_ms = part(times.handled),
            commit_ms = part(times.waited),
            batch_ms = part(times.batched),
            bytes_in = details.bytes_in,
            bytes_out = details.bytes_out,
            peer = details.peer.map(tracing::field::display),
            credential = details.credential,
            request = details.request_id.map(id),
            trace = details.trace_id.map(hex),
            "a call ended"
        );
    }

    /// Logs an HTTP request that is no call, if it is wanted and there is room in this second.
    pub(crate) fn http_ended(&self, request: &HttpReport<'_>) {
        let failed = request.status.is_none_or(|status| status >= 400);
        let Some(part) = self.takes(failed, request.elapsed) else { return };
        tracing::info!(
            target: TARGET,
            method = request.method.escape_debug().take(METHOD_CHARS_MAX).collect::<String>(),
            status = request.status,
            time_ms = milliseconds(request.elapsed),
            commit_ms = part(request.committing),
            bytes_in = request.bytes_in,
            bytes_out = request.bytes_out,
            peer = request.peer.map(tracing::field::display),
            credential = request.credential,
            request = request.request_id.map(id),
            trace = request.trace_id.map(hex),
            "a request ended"
        );
    }

    /// `None` if the call is not logged; else how parts of its time are shown, which is only of a slow one.
    fn takes(&self, failed: bool, elapsed: Duration) -> Option<impl Fn(Duration) -> Option<f64> + use<>> {
        let calls = self.calls.load();
        if !calls.want(failed, elapsed, fastrand::f64()) {
            return None;
        }
        let is_slow = calls.is_slow(elapsed);
        let has_room = self.written.take(calls.per_second);
        if !has_room {
            self.left_out.fetch_add(1, Relaxed);
        }
        has_room.then_some(move |part: Duration| (is_slow && part >= SHOWN_MIN).then(|| milliseconds(part)))
    }

    /// Logs the number of lines left out at each interval, for as long as it is polled.
    pub(crate) async fn show_left_out(self: Arc<Self>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.show_left_out_now();
        }
    }

    /// Logs the number of lines left out since the last time.
    pub(crate) fn show_left_out_now(&self) {
        let lines = self.left_out.swap(0, Relaxed);
        if lines > 0 {
            let limit = self.calls.load().per_second;
            tracing::info!(target: TARGET, lines, limit, "calls were left out: log.calls_per_second");
        }
    }
}

/// A request id as it is logged.
fn id(id: &[u8]) -> String {
    String::from_utf8_lossy(id).escape_debug().take(ID_CHARS_MAX).collect()
}

fn hex(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

/// Milliseconds, to the microsecond.
#[expect(clippy::cast_precision_loss, reason = "2^53 µs are 285 years")]
fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_wanted_by_its_outcome_or_its_time() {
        let ms = Duration::from_millis;
        for (outcomes, slower_than, wanted) in [
            (Outcomes::All, 0, [true; 4]),
            (Outcomes::Failures, 0, [false, false, true, true]),
            (Outcomes::Failures, 20, [false, true, true, true]),
            (Outcomes::None, 20, [false, true, false, true]),
        ] {
            let calls = Calls { outcomes, sample: 1.0, slower_than: ms(slower_than), per_second: 1 };
            let found = [(false, 19), (false, 20), (true, 19), (true, 20)];
            assert_eq!(found.map(|(failed, time)| calls.want(failed, ms(time), 0.999)), wanted, "{calls:?}");
            assert!(calls.log().is_on.load(Relaxed));
        }
    }

    #[test]
    fn chance_decides_neither_about_failures_nor_about_slow_calls() {
        let calls = Calls { outcomes: Outcomes::All, sample: 0.5, slower_than: Duration::from_secs(1), per_second: 1 };
        let wanted = |failed, seconds| {
            [0.0, 0.49, 0.5, 0.99].map(|chance| calls.want(failed, Duration::from_secs(seconds), chance))
        };
        assert_eq!(wanted(false, 0), [true, true, false, false]);
        assert_eq!((wanted(true, 0), wanted(false, 1)), ([true; 4], [true; 4]));
        assert!(!Calls { sample: 0.0, ..calls }.want(false, Duration::ZERO, 0.0));
    }
}
