//! Reports ended calls to the observer in batches, so that one clock reading times them all.

use quire_http2::StreamKey;
use tokio::time::Instant;

use super::calls::Calls;
use super::observer::CallReport;
use super::slot::Ended;
use crate::status::Code;

/// Greatest number of entries in a batch.
const ENDED_MAX: usize = 256;

impl Calls {
    #[inline]
    pub(super) fn ended(&mut self, stream: StreamKey, method: Option<usize>, code: Code) {
        let started_at = self.slots[stream.index()].started_at;
        if let Some(last) = self.ended.last_mut()
            && last.method == method
            && last.code == code
            && last.started_at == started_at
        {
            last.calls += 1;
            return;
        }
        if self.ended.len() >= ENDED_MAX {
            self.report();
        }
        self.ended.push(Ended { method, code, started_at, calls: 1 });
    }

    /// Called before every write, so that a client finds its answered call counted.
    pub(super) fn report(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        let now = Instant::now();
        for Ended { method, code, started_at, calls } in self.ended.drain(..) {
            let path = method.map_or("unknown", |method| &self.shared.routes.table[method].path);
            let elapsed = now.saturating_duration_since(started_at);
            let report = CallReport { method, path, code, elapsed };
            (0..calls).for_each(|_| self.shared.observer.call_finished(&report));
        }
    }
}
