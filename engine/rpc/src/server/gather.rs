//! Buffering of requests for handlers that need the whole message, within the connection's limits.
//!
//! Implements: gRPC over HTTP/2, "Length-Prefixed-Message".

use std::sync::Arc;

use quire_http2::StreamKey;

use super::calls::Calls;
use super::method::Intake;
use super::observer::Refusal;
use super::slot::{Feed, Phase};
use crate::codec::Payload;
use crate::message::Framed;
use crate::status::{Code, Status};

impl Calls {
    #[inline]
    pub(super) fn gather(&mut self, stream: StreamKey, mut data: &[u8], end: bool) {
        let message_bytes_max = self.shared.limits.message_bytes_max;
        let Phase::Gathering(gathering) = &mut self.slots[stream.index()].phase else { return };
        let is_complete = gathering.assembler.is_whole() && end && gathering.assembler.held_bytes() == 0;
        if is_complete && data.len() <= message_bytes_max {
            return self.start_whole(stream, Payload::Borrowed(data));
        }
        let held_before = gathering.held_bytes();
        let next = gathering.assembler.next(&mut data, message_bytes_max);
        self.gathered_bytes = self.gathered_bytes - held_before + gathering.held_bytes();
        let whole = match next {
            Ok(whole) => whole,
            Err(status) => return self.refuse_gathering(stream, status),
        };
        if let Some(framed) = whole {
            if gathering.message.is_some() || !data.is_empty() || !gathering.assembler.is_empty() {
                let status = Status::unimplemented("the call takes one message; more came");
                return self.refuse_gathering(stream, status);
            }
            if end {
                let (plan, head) = (gathering.plan, Arc::clone(&gathering.head));
                let request = gathering.request.take();
                return self.start(stream, &plan, &head, request, Intake::Message(&framed), Feed::None);
            }
            let kept = framed.bytes.into_bytes();
            self.gathered_bytes += kept.len();
            gathering.message = Some(Framed { compressed: framed.compressed, bytes: kept });
        }
        let limits = &self.shared.limits;
        let is_admitted = || {
            self.gathered_bytes < limits.unread_bytes_max && self.shared.is_answered_when_full(gathering.head.path())
        };
        let limit = if self.gathered_bytes > limits.gathered_bytes_max {
            Some(Refusal::GatheredBytes)
        } else if self.gathered_bytes > 0 {
            limits.memory.refusal(self.gathered_bytes).filter(|_| !is_admitted())
        } else {
            None
        };
        if let Some(limit) = limit {
            self.shared.observer.refused(limit);
            let status = self.shared.limits.refusal(limit);
            let state = self.shared.bare(gathering.plan.dialect, &gathering.head);
            let method = self.forget(stream);
            return self.refuse(stream, state, method, &status);
        }
        if end {
            self.gathered(stream);
        }
    }

    /// Starts a call whose request ended after its message.
    fn gathered(&mut self, stream: StreamKey) {
        let slot = &mut self.slots[stream.index()];
        let Phase::Gathering(mut gathering) = std::mem::take(&mut slot.phase) else { return };
        self.gathered_bytes -= gathering.held_bytes();
        if let Some(message) = gathering.assembler.whole() {
            self.slots[stream.index()].phase = Phase::Gathering(gathering);
            return self.start_whole(stream, Payload::Owned(message));
        }
        let method = Some(gathering.plan.method);
        let state = self.shared.bare(gathering.plan.dialect, &gathering.head);
        match gathering.message {
            Some(message) if gathering.assembler.is_empty() => {
                let framed = Framed { compressed: message.compressed, bytes: Payload::Owned(message.bytes) };
                self.start(
                    stream,
                    &gathering.plan,
                    &gathering.head,
                    gathering.request,
                    Intake::Message(&framed),
                    Feed::None,
                );
            }
            _ if !gathering.assembler.is_empty() => {
                self.refuse(stream, state, method, &Status::internal("the request ends inside a message"));
            }
            _ => self.refuse(stream, state, method, &Status::unimplemented("the call takes one message and none came")),
        }
    }

    /// Starts a call whose whole body is its message.
    pub(super) fn start_whole(&mut self, stream: StreamKey, body: Payload<'_>) {
        let Phase::Gathering(gathering) = std::mem::take(&mut self.slots[stream.index()].phase) else { return };
        // An empty body is not compressed, even if the head names an encoding.
        let compressed = gathering.plan.terms.encoding.is_some() && !body.as_slice().is_empty();
        let framed = Framed { compressed, bytes: body };
        self.start(stream, &gathering.plan, &gathering.head, gathering.request, Intake::Message(&framed), Feed::None);
    }

    fn refuse_gathering(&mut self, stream: StreamKey, mut status: Status) {
        let Phase::Gathering(gathering) = &self.slots[stream.index()].phase else { return };
        let state = self.shared.bare(gathering.plan.dialect, &gathering.head);
        let method = self.forget(stream);
        if status.code() == Code::ResourceExhausted {
            self.shared.observer.refused(Refusal::MessageBytes);
            status = self.shared.limits.refusal(Refusal::MessageBytes);
        }
        self.refuse(stream, state, method, &status);
    }
}
