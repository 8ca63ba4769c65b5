//! What a connection brings for its calls: heads, messages and trailers, handed to the callers.
//!
//! Must not know how requests are sent.
//!
//! Implements: gRPC over HTTP/2, "Responses", the client's side.

use std::sync::Arc;

use quire_http2::{ErrorCode, Head, StreamKey};

use super::calls::{Active, Calls, Reply};
use super::command::{Failure, RawReply, RawStream, ReplyTo};
use super::reply::{ReplyPlan, trailing_status};
use crate::message::Framed;
use crate::metadata::Metadata;
use crate::status::Status;

impl Calls {
    fn take(&mut self, stream: StreamKey) -> Option<Active> {
        self.active(stream)?;
        self.slots.get_mut(stream.index())?.take()
    }

    #[inline]
    pub(super) fn head(&mut self, stream: StreamKey, head: Arc<Head>, end: bool) {
        self.time_head(stream);
        let status_only = head.get(b"grpc-status").is_some();
        if end && status_only {
            return self.finish(stream, &head);
        }
        let refusal = match head.memo(|| ReplyPlan::read(&head)) {
            Some(ReplyPlan::Grpc(encoding)) if !end => {
                let encoding = *encoding;
                let Some(active) = self.active(stream) else { return };
                active.head = Some((Arc::clone(&head), encoding));
                if let Reply::Stream { to, inbox } = &mut active.reply
                    && let Some(ReplyTo::Stream(to)) = to.take()
                {
                    let _ = to.send(Ok(RawStream { head: Some(head), encoding, inbox: Arc::clone(inbox) }));
                }
                return;
            }
            Some(ReplyPlan::Refuse(status)) => status.clone(),
            _ => Status::internal("the answer ends without a status"),
        };
        self.fail(stream, refusal, false);
        self.connection.reset(stream, ErrorCode::CANCEL);
    }

    /// Notes when a head came, with one look at the clock for all heads of a read.
    #[inline]
    fn time_head(&mut self, stream: StreamKey) {
        let slot = self.slots.get_mut(stream.index()).and_then(Option::as_mut);
        if let Some(active) = slot.filter(|active| active.is_timed && active.stream == stream) {
            active.head_at = Some(*self.read_at.get_or_insert_with(std::time::Instant::now));
        }
    }

    #[inline]
    pub(super) fn data(&mut self, stream: StreamKey, mut data: &[u8], end: bool) {
        let message_bytes_max = self.settings.message_bytes_max;
        let length = data.len();
        let Some(active) = self.active(stream) else { return self.connection.release(stream, length) };
        let mut poll = false;
        let failed = loop {
            match active.assembler.next(&mut data, message_bytes_max) {
                Err(status) => break Some(status),
                Ok(None) => break None,
                Ok(Some(framed)) => {
                    let framed = Framed { compressed: framed.compressed, bytes: framed.bytes.into_bytes() };
                    match &mut active.reply {
                        Reply::Stream { inbox, .. } => poll |= inbox.push(framed),
                        Reply::Unary { message: Some(_), .. } => {
                            break Some(Status::internal("more than one message in answer to a unary call"));
                        }
                        Reply::Unary { message, .. } => *message = Some(framed),
                    }
                }
            }
        };
        active.unreleased += length;
        if poll {
            self.wakes.mark(stream.index());
        }
        let failed = failed.or_else(|| end.then(|| Status::internal("the answer ends without trailers")));
        if let Some(status) = failed {
            self.fail(stream, status, false);
            return self.connection.reset(stream, ErrorCode::CANCEL);
        }
        self.release(stream);
    }

    pub(super) fn release(&mut self, stream: StreamKey) {
        let Some(active) = self.active(stream) else { return };
        let stalled = match &active.reply {
            Reply::Unary { .. } => false,
            Reply::Stream { inbox, .. } => inbox.stall(),
        };
        if !stalled {
            let bytes = std::mem::take(&mut active.unreleased);
            self.connection.release(stream, bytes);
        }
    }

    /// The answer ended.
    #[inline]
    pub(super) fn finish(&mut self, stream: StreamKey, trailers: &Arc<Head>) {
        let Some(active) = self.take(stream) else { return };
        if !self.connection.is_receive_closed(stream) || self.connection.is_live(stream) {
            // The server has answered before it had all of the request: the rest is not wanted.
            self.connection.reset(stream, ErrorCode::CANCEL);
        }
        let status = trailing_status(trailers);
        let status = status.map_or_else(
            || {
                if active.assembler.is_empty() {
                    None
                } else {
                    Some(Status::internal("the answer ends inside a message"))
                }
            },
            Some,
        );
        let head_at = active.head_at;
        match active.reply {
            Reply::Unary { to: ReplyTo::Unary(to), message } => {
                let answer = match (status, active.head, message) {
                    (None, Some((head, encoding)), Some(message)) => {
                        Ok(RawReply { head, encoding, message, trailers: Arc::clone(trailers), head_at })
                    }
                    (status, ..) => {
                        let status = status.unwrap_or_else(|| Status::internal("the answer holds no message"));
                        Err(Failure { status, untouched: false, head_at })
                    }
                };
                let _ = to.send(answer);
            }
            Reply::Unary { .. } => {}
            Reply::Stream { to, inbox } => {
                let _ = match (to, status) {
                    (Some(to), Some(status)) => {
                        to.fail(status, false);
                        false
                    }
                    (None, Some(status)) => inbox.end(Err(status)),
                    (to, None) => {
                        if let Some(ReplyTo::Stream(to)) = to {
                            let raw = RawStream { head: None, encoding: None, inbox: Arc::clone(&inbox) };
                            let _ = to.send(Ok(raw));
                        }
                        inbox.end(Ok(Metadata::received(Arc::clone(trailers))))
                    }
                };
            }
        }
    }

    pub(super) fn fail(&mut self, stream: StreamKey, status: Status, untouched: bool) {
        let Some(active) = self.take(stream) else { return };
        match active.reply {
            Reply::Unary { to, .. } | Reply::Stream { to: Some(to), .. } => to.fail(status, untouched),
            Reply::Stream { to: None, inbox } => {
                inbox.end(Err(status));
            }
        }
    }

    pub(super) fn fail_all(&mut self, status: &Status) {
        let streams: Vec<StreamKey> = self.slots.iter().flatten().map(|active| active.stream).collect();
        for stream in streams {
            self.fail(stream, status.clone(), false);
        }
    }
}
