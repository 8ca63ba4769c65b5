//! What a request still brings after its answer: taken and dropped, so that the client can finish and read the answer.
//!
//! A reset behind the answer would be legal at once, and some clients then report the reset in place of the answer.
//! So it waits for as many bytes and as much time as the limits allow. Until then the connection checks the rest of
//! the request as it checks any other.
//!
//! curl 7 sees that such a stream is closed only when the connection brings something more: a PING is that.
//!
//! Implements: RFC 9113 section 8.1, a response before the end of its request.

use std::time::Duration;

use quire_http2::{Head, StreamKey};

use super::calls::Calls;
use super::plan::CallPlan;
use super::slot::{Phase, Rest};
use crate::status::Status;

/// What is taken of a request whose head was refused, and for how long: no more than is under way anyhow.
pub(super) const REFUSED_BYTES_MAX: usize = 16 * 1024;
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);

impl Calls {
    /// Refuses a request for what its head says, and takes little of what may follow.
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
