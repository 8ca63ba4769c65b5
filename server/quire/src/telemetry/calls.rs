//! The log of calls and of HTTP requests: a line for each that ended and is wanted, up to a number a second; those left
//! out are counted.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calls {
    pub outcomes: Outcomes,
    /// Calls that take as long are logged with any outcome; 0 for none.
    pub slower_than: Duration,
    /// Lines a second.
    pub per_second: u32,
}

impl Calls {
    /// The log; `None` if no call is wanted.
    pub(crate) fn log(self) -> Option<Arc<CallLog>> {
        let is_off = self.outcomes == Outcomes::None && self.slower_than.is_zero();
        let log = || CallLog {
            calls: ArcSwap::from_pointee(self),
            start: Instant::now(),
            second: 0.into(),
            left_out: 0.into(),
        };
        (!is_off).then(|| Arc::new(log()))
    }

    fn want(&self, failed: bool, elapsed: Duration) -> bool {
        let by_outcome = match self.outcomes {
            Outcomes::None => false,
            Outcomes::Failures => failed,
            Outcomes::All => true,
        };
        by_outcome || (!self.slower_than.is_zero() && elapsed >= self.slower_than)
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
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub peer: Option<SocketAddr>,
    pub credential: Option<&'a str>,
    pub request_id: Option<&'a [u8]>,
}

/// The log.
#[derive(Debug)]
pub(crate) struct CallLog {
    calls: ArcSwap<Calls>,
    start: Instant,
    /// The second since the start in the upper half, and the lines written in it.
    second: AtomicU64,
    left_out: AtomicU64,
}

impl CallLog {
    /// Changes the settings; returns true if they differ from the last ones.
    pub(crate) fn set(&self, calls: Calls) -> bool {
        *self.calls.swap(Arc::new(calls)) != calls
    }

    /// Logs a call, if it is wanted and there is room in this second.
    pub(crate) fn ended(&self, call: &CallReport<'_>, details: &CallDetails<'_>) {
        if !self.takes(call.code != Code::Ok, call.elapsed) {
            return;
        }
        tracing::info!(
            target: TARGET,
            method = call.path,
            code = ?call.code,
            time_ms = milliseconds(call.elapsed),
            bytes_in = details.bytes_in,
            bytes_out = details.bytes_out,
            peer = details.peer.map(tracing::field::display),
            credential = details.credential,
            request = details.request_id.map(id),
            "a call ended"
        );
    }

    /// Logs an HTTP request that is no call, if it is wanted and there is room in this second.
    pub(crate) fn http_ended(&self, request: &HttpReport<'_>) {
        if !self.takes(request.status.is_none_or(|status| status >= 400), request.elapsed) {
            return;
        }
        tracing::info!(
            target: TARGET,
            method = request.method.escape_debug().take(METHOD_CHARS_MAX).collect::<String>(),
            status = request.status,
            time_ms = milliseconds(request.elapsed),
            bytes_in = request.bytes_in,
            bytes_out = request.bytes_out,
            peer = request.peer.map(tracing::field::display),
            credential = request.credential,
            request = request.request_id.map(id),
            "a request ended"
        );
    }

    fn takes(&self, failed: bool, elapsed: Duration) -> bool {
        if !self.calls.load().want(failed, elapsed) {
            return false;
        }
        let has_room = self.may_write(self.start.elapsed().as_secs());
        if !has_room {
            self.left_out.fetch_add(1, Relaxed);
        }
        has_room
    }

    /// Takes a line of this second, if any is left.
    fn may_write(&self, second: u64) -> bool {
        let lines_max = u64::from(self.calls.load().per_second);
        let take = |state: u64| {
            if state >> 32 != second {
                return Some(second << 32 | 1);
            }
            (state & u64::from(u32::MAX) < lines_max).then(|| state + 1)
        };
        self.second.fetch_update(Relaxed, Relaxed, take).is_ok()
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
            let calls = Calls { outcomes, slower_than: ms(slower_than), per_second: 1 };
            let found =
                [(false, 19), (false, 20), (true, 19), (true, 20)].map(|(failed, time)| calls.want(failed, ms(time)));
            assert_eq!(found, wanted, "{calls:?}");
        }
        assert!(Calls { outcomes: Outcomes::None, slower_than: ms(0), per_second: 1 }.log().is_none());
    }

    #[test]
    fn a_second_has_so_many_lines_and_the_next_has_as_many() {
        let calls = Calls { outcomes: Outcomes::All, slower_than: Duration::ZERO, per_second: 3 };
        let log = calls.log().expect("a log");
        for second in [0, 1, 2, 7] {
            let written = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| (0..10).filter(|_| log.may_write(second)).count())).collect();
                threads.into_iter().map(|thread| thread.join().expect("a count")).sum::<usize>()
            });
            assert_eq!(written, 3, "in second {second}");
        }
    }
}
