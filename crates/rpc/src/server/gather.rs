//! Requests that a handler needs whole: gathered until their end, within the connection's limits.
//!
//! Must not know handlers.
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
        let held_before = gathering.assembler.held_bytes();
        let whole = match gathering.assembler.next(&mut data, message_bytes_max) {
            Ok(whole) => whole,
            Err(status) => return self.refuse_gathering(stream, &status),
        };
        if let Some(framed) = whole {
            self.gathered_bytes -= held_before;
            if gathering.message.is_some() || !data.is_empty() {
                return self.refuse_gathering(stream, &Status::unimplemented("the call takes one message; more came"));
            }
            if end {
                let (plan, head) = (gathering.plan, Arc::clone(&gathering.head));
                return self.start(stream, plan, &head, Intake::Message(framed), Feed::None);
            }
            let kept = framed.bytes.into_bytes();
            self.gathered_bytes += kept.len();
            gathering.message = Some(Framed { compressed: framed.compressed, bytes: kept });
        } else {
            self.gathered_bytes = self.gathered_bytes - held_before + gathering.assembler.held_bytes();
        }
        if self.gathered_bytes > self.shared.limits.gathered_bytes_max {
            self.shared.observer.refused(Refusal::GatheredBytes);
            let status = self.shared.limits.refusal(Refusal::GatheredBytes);
            let method = self.forget(stream);
            return self.refuse(stream, method, &status);
        }
        if end {
            self.gathered(stream);
        }
    }

    /// The request's end came apart from its message.
    fn gathered(&mut self, stream: StreamKey) {
        let slot = &mut self.slots[stream.index()];
        let Phase::Gathering(gathering) = std::mem::take(&mut slot.phase) else { return };
        self.gathered_bytes -= gathering.held_bytes();
        let method = Some(gathering.plan.method);
        match gathering.message {
            Some(message) if gathering.assembler.is_empty() => {
                let framed = Framed { compressed: message.compressed, bytes: Payload::Owned(message.bytes) };
                self.start(stream, gathering.plan, &gathering.head, Intake::Message(framed), Feed::None);
            }
            _ if !gathering.assembler.is_empty() => {
                self.refuse(stream, method, &Status::internal("the request ends inside a message"));
            }
            _ => self.refuse(stream, method, &Status::unimplemented("the call takes one message and none came")),
        }
    }

    fn refuse_gathering(&mut self, stream: StreamKey, status: &Status) {
        let method = self.forget(stream);
        if status.code() == Code::ResourceExhausted {
            self.shared.observer.refused(Refusal::MessageBytes);
            let status = self.shared.limits.refusal(Refusal::MessageBytes);
            return self.refuse(stream, method, &status);
        }
        self.refuse(stream, method, status);
    }
}
