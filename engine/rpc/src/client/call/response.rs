//! Reader of one response: its head, messages and end, delivered to the caller.

use std::sync::Arc;
use std::task::Context;
use std::time::Instant;

use bytes::Bytes;
use quire_http2::Head;
use tokio::sync::{mpsc, oneshot};

use super::attempt::{Failure, ReplyTo, StreamResponse, UnaryResponse};
use crate::message::codec::Payload;
use crate::message::compression::Encoding;
use crate::message::framing::{Assembler, Framed, Framing};
use crate::message::inbox::Inbox;
use crate::message::transcode::Reading;
use crate::metadata::Metadata;
use crate::protocol::{AnswerHead, ClientDialect};
use crate::status::Status;

/// The caller, and what it has not received yet.
enum Caller {
    Unary {
        to: oneshot::Sender<Result<UnaryResponse, Failure>>,
        message: Option<Framed<Bytes>>,
        begun: Option<(mpsc::UnboundedSender<u32>, u32)>,
    },
    /// The caller waits at `to` until the head arrives.
    Stream { to: Option<oneshot::Sender<Result<StreamResponse, Failure>>>, inbox: Arc<Inbox> },
}

/// A response that is still being received.
pub(crate) struct ResponseReader {
    dialect: ClientDialect,
    caller: Caller,
    head: Option<(Arc<Head>, Option<Encoding>)>,
    /// True if the caller wants the time of the head.
    pub(crate) is_timed: bool,
    pub(crate) head_at: Option<Instant>,
    assembler: Assembler,
    message_bytes_max: usize,
    has_body: bool,
    /// True if the body describes a failure.
    is_failure: bool,
    /// Outcome from the envelope that ended the stream.
    outcome: Option<Box<Result<Metadata, Status>>>,
}

/// Adds the leading metadata to a failure, which is all that the caller gets.
pub(crate) fn with_head(mut status: Status, metadata: &Metadata) -> Status {
    if !metadata.is_empty() && !metadata.is_same_block(status.metadata()) {
        let mut all = metadata.clone();
        all.extend(status.metadata());
        *status.metadata_mut() = all;
    }
    status
}

impl ResponseReader {
    /// `inbox` creates the queue of a stream.
    pub(crate) fn new(
        dialect: ClientDialect,
        reply_to: ReplyTo,
        message_bytes_max: usize,
        inbox: impl FnOnce() -> Arc<Inbox>,
    ) -> Self {
        let (is_timed, is_unread) = match &reply_to {
            ReplyTo::Unary { is_timed, is_unread, .. } => (*is_timed, *is_unread),
            ReplyTo::Stream(_) => (false, false),
        };
        let caller = match reply_to {
            ReplyTo::Unary { to, begun, .. } => Caller::Unary { to, message: None, begun },
            ReplyTo::Stream(to) => Caller::Stream { to: Some(to), inbox: inbox() },
        };
        let assembler = if dialect.is_plain {
            Assembler::default()
        } else {
            let assembler = if dialect.protocol.is_chunked() {
                Assembler::chunks()
            } else {
                Assembler::of(dialect.protocol.framing())
            };
            assembler.ended_by(dialect.protocol.end_flag())
        };
        Self {
            dialect,
            caller,
            head: None,
            is_timed,
            head_at: None,
            assembler: if is_unread { assembler.unread() } else { assembler },
            message_bytes_max,
            has_body: false,
            is_failure: false,
            outcome: None,
        }
    }

    /// True for a trailers-only response.
    pub(crate) fn is_trailers(&self, head: &Head) -> bool {
        self.dialect.protocol.is_trailers(head)
    }

    /// Processes the head; fails the call if it is not an RPC response.
    #[inline]
    pub(crate) fn head(&mut self, head: &Arc<Head>) -> Result<(), Status> {
        let ClientDialect { protocol, codec, is_plain } = self.dialect;
        let known = if is_plain { head.memo(|| protocol.begin(codec, head)) } else { None };
        let read;
        let begun = if let Some(begun) = known {
            begun
        } else {
            read = protocol.begin(codec, head);
            &read
        };
        match begun {
            AnswerHead::Messages(encoding) => {
                self.head = Some((Arc::clone(head), *encoding));
                match &mut self.caller {
                    Caller::Unary { begun: Some((begun, number)), .. } => drop(begun.send(*number)),
                    Caller::Unary { .. } => {}
                    Caller::Stream { to, inbox } => {
                        if let Some(to) = to.take() {
                            let (metadata, inbox) = (protocol.metadata(head), Arc::clone(inbox));
                            let _ = to.send(Ok(StreamResponse { metadata, encoding: *encoding, inbox }));
                        }
                    }
                }
                Ok(())
            }
            AnswerHead::Failure(encoding) => {
                self.head = Some((Arc::clone(head), *encoding));
                self.is_failure = true;
                self.assembler = Assembler::of(Framing::Complete);
                Ok(())
            }
            AnswerHead::Refused(status) => Err(with_head(status.clone(), &protocol.metadata(head))),
        }
    }

    /// Processes body bytes. Returns true if the caller's task must be polled; fails if the call fails.
    #[inline]
    pub(crate) fn data(&mut self, mut data: &[u8]) -> Result<bool, Status> {
        self.has_body |= !data.is_empty();
        let mut poll = false;
        loop {
            if self.outcome.is_some() && !data.is_empty() {
                return Err(Status::internal("the answer goes on after its end"));
            }
            if let Caller::Stream { inbox, .. } = &self.caller {
                let run = self.assembler.run(&mut data, self.message_bytes_max);
                if !run.is_empty() {
                    poll |= inbox.push_run(run);
                }
            }
            let Some(framed) = self.assembler.next(&mut data, self.message_bytes_max)? else { return Ok(poll) };
            if self.assembler.is_ending() {
                let encoding = self.head.as_ref().and_then(|(_, encoding)| *encoding);
                let reading = Reading { encoding, json: None, message_bytes_max: self.message_bytes_max, budget: None };
                let outcome = self.dialect.protocol.read_end(reading.open(framed)?.as_slice());
                self.outcome = Some(Box::new(outcome));
                continue;
            }
            let framed = Framed { compressed: framed.compressed, bytes: framed.bytes.into_bytes() };
            match &mut self.caller {
                Caller::Stream { inbox, .. } => poll |= inbox.push(framed),
                Caller::Unary { message: Some(_), .. } => {
                    return Err(Status::unimplemented("more than one message in answer to a unary call"));
                }
                Caller::Unary { message, .. } => *message = Some(framed),
            }
        }
    }

    /// True if the reader is so far behind that the window should stay closed.
    pub(crate) fn is_stalled(&self) -> bool {
        match &self.caller {
            Caller::Unary { .. } => false,
            Caller::Stream { inbox, .. } => inbox.stall(),
        }
    }

    /// True if the caller has dropped its stream.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(&self.caller, Caller::Stream { to: None, inbox } if inbox.is_abandoned())
    }

    /// True if no one waits for the response; else the task is woken once that is so.
    pub(crate) fn poll_abandoned(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.caller {
            Caller::Unary { to, .. } => to.poll_closed(cx).is_ready(),
            Caller::Stream { to: Some(to), .. } => to.poll_closed(cx).is_ready(),
            Caller::Stream { to: None, inbox } => inbox.is_abandoned(),
        }
    }

    /// True if a head that promises messages has arrived (A6, "When Retries are Valid").
    fn is_committed(&self) -> bool {
        self.head.is_some() && !self.is_failure
    }

    /// Ends the response after its body.
    #[inline]
    pub(crate) fn end(mut self, trailers: Option<&Arc<Head>>) {
        let outcome = self.outcome(trailers);
        let (head_at, protocol, is_committed) = (self.head_at, self.dialect.protocol, self.is_committed());
        match self.caller {
            Caller::Unary { to, message, .. } => {
                let whole = || {
                    let bytes = self.assembler.take_complete()?;
                    let compressed =
                        !bytes.is_empty() && self.head.as_ref().is_some_and(|(_, packed)| packed.is_some());
                    Some(Framed { compressed, bytes })
                };
                let message = message.or_else(whole);
                let answer = match (outcome, self.head, message) {
                    (Ok(trailers), Some((head, encoding)), Some(message)) => {
                        Ok(UnaryResponse { metadata: protocol.metadata(&head), encoding, message, trailers, head_at })
                    }
                    (outcome, head, _) => {
                        let none = || Status::unimplemented("the answer holds no message");
                        let status = outcome.err().unwrap_or_else(none);
                        let status = match head {
                            Some((head, _)) => with_head(status, &protocol.metadata(&head)),
                            None => status,
                        };
                        Err(Failure { head_at, is_committed, ..status.into() })
                    }
                };
                let _ = to.send(answer);
            }
            Caller::Stream { to: Some(to), inbox } => {
                let _ = match outcome {
                    Err(status) => to.send(Err(status.into())),
                    Ok(trailers) => {
                        inbox.end(Ok(trailers));
                        to.send(Ok(StreamResponse { metadata: Metadata::new(), encoding: None, inbox }))
                    }
                };
            }
            Caller::Stream { to: None, inbox } => {
                inbox.end(outcome);
            }
        }
    }

    #[inline]
    fn outcome(&mut self, trailers: Option<&Arc<Head>>) -> Result<Metadata, Status> {
        let protocol = self.dialect.protocol;
        if let Some(outcome) = self.outcome.take() {
            return *outcome;
        }
        let head = self.head.as_ref().map(|(head, _)| head).or(trailers);
        let Some(head) = head else { return Err(Status::internal("the answer has no head")) };
        if self.is_failure {
            let bytes = self.assembler.take_complete().unwrap_or_default();
            let encoding = self.head.as_ref().and_then(|(_, encoding)| *encoding);
            let framed = Framed { compressed: encoding.is_some() && !bytes.is_empty(), bytes: Payload::Owned(bytes) };
            let reading = Reading { encoding, json: None, message_bytes_max: self.message_bytes_max, budget: None };
            let body = reading.open(framed).map(Payload::into_bytes).unwrap_or_default();
            return Err(protocol.failure(head, &body));
        }
        let outcome = protocol.end(head, trailers, self.has_body);
        match outcome {
            Ok(_) if !self.assembler.is_empty() => Err(Status::internal("the answer ends inside a message")),
            outcome => outcome,
        }
    }

    /// Fails the call without a response.
    pub(crate) fn fail(self, failure: impl Into<Failure>) {
        let failure = Failure { head_at: self.head_at, is_committed: self.is_committed(), ..failure.into() };
        match self.caller {
            Caller::Unary { to, .. } => drop(to.send(Err(failure))),
            Caller::Stream { to: Some(to), .. } => drop(to.send(Err(failure))),
            Caller::Stream { to: None, inbox } => {
                inbox.end(Err(failure.status));
            }
        }
    }
}
