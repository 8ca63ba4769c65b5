//! Discarding of request data after the answer, so that the client can finish sending and read it.
//!
//! A reset right after the answer would be legal, but some clients then report the reset instead of the answer. So it
//! waits until the limits on bytes and time are reached. Until then the rest of the request is checked as usual.
//!
//! curl 7 notices that such a stream is closed only when the connection brings more data: hence the PING.
//!
//! Implements: RFC 9113 section 8.1, a response before the end of its request.

use std::time::Duration;

use quire_http2::{Head, StreamKey};

use super::calls::Calls;
use super::plan::CallPlan;
use super::slot::{Phase, Rest};
use crate::status::Status;

/// Bytes, and below the time, for discarding after a refused head: no more than is in flight anyhow.
pub(super) const REFUSED_BYTES_MAX: usize = 16 * 1024;
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);

impl Calls {
    /// Refuses a request by its head, and discards little of the rest.
    #[cold]
    pub(super) fn refuse_head(&mut self, stream: StreamKey, plan: &CallPlan, head: &Head, status: &Status) {
        self.refuse(stream, self.shared.bare(plan.dialect, head), Some(plan.method), status);
        let expires_at = self.now + REFUSED_TIMEOUT;
        if let Phase::Discarding(rest) = &mut self.slots[stream.index()].phase {
            rest.left_bytes = rest.left_bytes.min(REFUSED_BYTES_MAX);
            rest.expires_at = rest.expires_at.min(expires_at);
            self.note_deadline(Some(expires_at));
        }
    }

    #[cold]
    pub(super) fn begin_discarding(&mut self, stream: StreamKey) {
        let limits = &self.shared.limits;
        let expires_at = self.now.checked_add(limits.discard_timeout).unwrap_or(self.now);
        let rest = Rest { left_bytes: limits.discarded_bytes_max, expires_at };
        self.slots[stream.index()].phase = Phase::Discarding(rest);
        self.note_deadline(Some(expires_at));
    }

    pub(super) fn discard(&mut self, stream: StreamKey, bytes: usize, end: bool) {
        let phase = &mut self.slots[stream.index()].phase;
        let Phase::Discarding(rest) = phase else { return };
        if end {
            *phase = Phase::Free;
            self.nudge_due |= !self.connection.is_live(stream);
        } else if let Some(left) = rest.left_bytes.checked_sub(bytes) {
            rest.left_bytes = left;
            self.connection.release(stream, bytes);
        } else {
            *phase = Phase::Free;
            self.closing.push(stream);
        }
    }
}
