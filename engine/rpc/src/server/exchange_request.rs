//! The request of an exchange: its body is read for the handler, gathered where that needs the whole message, and
//! charged to the account of memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body::Body as _;
use quire_http2::Head;

use super::exchange::{Exchange, Stage};
use super::method::Intake;
use super::observer::Refusal;
use super::shared::Shared;
use super::slot::Feed;
use crate::codec::Payload;
use crate::inbox::Inbox;
use crate::message::{Assembler, Framed};
use crate::status::{Code, Status};
use crate::wake::WakeSet;

impl Exchange {
    /// Reads the body for a handler that wants more; true if any came.
    pub(super) fn read(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        // The message of a GET came in its head.
        let is_whole = self.head.method() == b"GET";
        let is_stream = self.plan.is_some_and(|plan| self.shared.routes.table[plan.method].is_streaming_in);
        loop {
            if matches!(self.stage, Stage::Gathering(..)) && !self.is_let_in() {
                return true;
            }
            match &self.stage {
                Stage::Over => return progress,
                Stage::Running(_, feed) if self.body_is_over || feed.is_stalled() => return progress,
                Stage::Gathering(..) if is_stream => {
                    self.start_stream(cx);
                    progress = true;
                    continue;
                }
                Stage::Gathering(..) if self.body_is_over || is_whole => {
                    self.gathered(cx);
                    return true;
                }
                Stage::Running(..) | Stage::Gathering(..) => {}
            }
            let data = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return progress,
                Poll::Ready(None) => None,
                Poll::Ready(Some(Ok(frame))) => Some(frame.into_data().unwrap_or_default()),
                Poll::Ready(Some(Err(_))) => {
                    self.refuse(&Status::cancelled("the request broke off"));
                    return true;
                }
            };
            progress = true;
            self.take(data.as_deref());
        }
    }

    /// Handles body data, or the body's end.
    fn take(&mut self, data: Option<&[u8]>) {
        self.body_is_over = data.is_none();
        let message_bytes_max = self.shared.limits.message_bytes_max;
        match &mut self.stage {
            Stage::Running(_, feed) => {
                feed.push(data.unwrap_or_default(), data.is_none(), message_bytes_max);
            }
            Stage::Gathering(assembler, message) => {
                let Some(mut data) = data else { return };
                loop {
                    match assembler.next(&mut data, message_bytes_max) {
                        Ok(None) => {
                            if let Some(limit) = refusal(&self.shared, &self.head, assembler.held_bytes()) {
                                self.refuse_for(limit);
                            }
                            return;
                        }
                        Ok(Some(framed)) if message.is_none() => {
                            let bytes = framed.bytes.into_bytes();
                            *message = Some(Framed { compressed: framed.compressed, bytes });
                        }
                        Ok(Some(_)) => {
                            return self.refuse(&Status::unimplemented("the call takes one message; more came"));
                        }
                        Err(status) if status.code() == Code::ResourceExhausted => {
                            return self.refuse_for(Refusal::MessageBytes);
                        }
                        Err(status) => return self.refuse(&status),
                    }
                }
            }
            Stage::Over => {}
        }
    }

    /// Starts the call once its request is complete.
    fn gathered(&mut self, cx: &mut Context<'_>) {
        let Stage::Gathering(mut assembler, message) = std::mem::replace(&mut self.stage, Stage::Over) else { return };
        let compressed = self.plan.is_some_and(|plan| plan.terms.encoding.is_some());
        let whole = assembler.whole().map(|bytes| Framed { compressed: compressed && !bytes.is_empty(), bytes });
        match message.or(whole) {
            Some(message) if assembler.is_empty() => {
                let message = Framed { compressed: message.compressed, bytes: Payload::Owned(message.bytes) };
                self.start(cx, Intake::Message(&message), Feed::None);
            }
            _ if !assembler.is_empty() => self.refuse(&Status::internal("the request ends inside a message")),
            _ => self.refuse(&Status::unimplemented("the call takes one message and none came")),
        }
    }

    fn start_stream(&mut self, cx: &mut Context<'_>) {
        let wakes = WakeSet::new(1);
        wakes.register(cx.waker());
        let inbox = Inbox::new(wakes.waker(0), self.shared.limits.unread_bytes_max);
        self.wakes = Some(wakes);
        let feed = Feed::Messages(Arc::clone(&inbox), Assembler::of(self.state.dialect.framing()));
        self.start(cx, Intake::Stream(&inbox), feed);
    }

    /// Charges the bytes the call holds; refuses the call if it was cut.
    pub(super) fn account(&mut self, cx: &Context<'_>) {
        let held = match &self.stage {
            Stage::Gathering(assembler, message) => {
                assembler.held_bytes() + message.as_ref().map_or(0, |message| message.bytes.len())
            }
            Stage::Running(running, feed) => feed.unread_bytes() + running.held_bytes(),
            Stage::Over => 0,
        };
        self.charge.set(held + self.head_bytes, cx.waker());
        if held > 0 && self.charge.is_cut() {
            self.refuse_for(Refusal::BufferBytes);
        }
    }
}

/// The limit that ends a request holding `held_bytes`, if any.
fn refusal(shared: &Shared, head: &Head, held_bytes: usize) -> Option<Refusal> {
    let limits = &shared.limits;
    let is_admitted = || held_bytes < limits.unread_bytes_max && shared.is_answered_when_full(head.path());
    if held_bytes == 0 { None } else { limits.memory.refusal(held_bytes).filter(|_| !is_admitted()) }
}
