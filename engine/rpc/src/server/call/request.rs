//! A call's request: its head, and its message or messages as they arrive.
//!
//! Implements: gRPC over HTTP/2, "Length-Prefixed-Message".

use std::sync::Arc;

use bytes::Bytes;
use quire_http2::Head;
use quire_net::Client;
use tokio::time::Instant;

use crate::envelope::{Peer, Request};
use crate::message::codec::Payload;
use crate::message::compression::Accepted;
use crate::message::framing::{Assembler, Framed};
use crate::message::inbox::Inbox;
use crate::metadata::Metadata;
use crate::protocol::{Dialect, Terms};
use crate::status::Status;

/// A call as described by its head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPlan {
    pub(crate) method: usize,
    pub(crate) dialect: Dialect,
    pub(crate) terms: Terms,
}

impl CallPlan {
    /// Encodings of precompressed answers that the caller accepts; plain gRPC only.
    #[inline]
    fn accepted(&self) -> Accepted {
        if self.dialect.is_plain { self.terms.accepted } else { Accepted::default() }
    }

    /// The message that is a whole body. An empty body is not compressed, even if the head names an encoding.
    #[inline]
    pub(crate) fn unframed<'a>(&self, body: Payload<'a>) -> Framed<Payload<'a>> {
        Framed { compressed: self.terms.encoding.is_some() && !body.as_slice().is_empty(), bytes: body }
    }
}

/// Metadata, deadline and peer of a call, assembled on demand: most bytes methods never need them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHead<'a> {
    pub(crate) plan: &'a CallPlan,
    pub(crate) head: &'a Arc<Head>,
    pub(crate) peer: &'a Arc<Peer>,
    /// The caller's deadline, if it set one.
    pub(crate) deadline: Option<Instant>,
}

impl<'a> CallHead<'a> {
    #[inline]
    pub(crate) fn new(plan: &'a CallPlan, head: &'a Arc<Head>, peer: &'a Arc<Peer>, started_at: Instant) -> Self {
        let deadline = plan.terms.timeout.and_then(|timeout| started_at.checked_add(timeout));
        Self { plan, head, peer, deadline }
    }

    /// The request with this message.
    #[inline]
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let metadata = Metadata::received(Arc::clone(self.head));
        let request = Request::received(message, metadata, self.deadline, Arc::clone(self.peer));
        request.accepting(self.plan.accepted())
    }
}

/// Undecoded messages of a request.
#[derive(Clone, Copy)]
pub(crate) enum Intake<'a> {
    Message(&'a Framed<Payload<'a>>),
    Stream(&'a Arc<Inbox>),
}

/// An incomplete request that its handler needs whole.
pub(crate) struct Gathering {
    pub(crate) plan: CallPlan,
    pub(crate) head: Arc<Head>,
    /// The request without its message, after the interceptors; `None` if there are none.
    pub(crate) request: Option<Box<Request<()>>>,
    assembler: Assembler,
    message: Option<Framed<Bytes>>,
    pub(crate) expires_at: Instant,
}

impl Gathering {
    pub(crate) fn new(plan: CallPlan, head: Arc<Head>, request: Option<Box<Request<()>>>, expires_at: Instant) -> Self {
        let assembler = Assembler::of(plan.dialect.framing());
        Self { plan, head, request, assembler, message: None, expires_at }
    }

    /// Takes body data; returns the message once the request has ended.
    #[inline]
    pub(crate) fn push<'a>(
        &mut self,
        mut data: &'a [u8],
        end: bool,
        message_bytes_max: usize,
    ) -> Result<Option<Framed<Payload<'a>>>, Status> {
        let is_complete_body = self.assembler.is_complete_body() && end && self.assembler.held_bytes() == 0;
        if is_complete_body && data.len() <= message_bytes_max {
            return Ok(Some(self.plan.unframed(Payload::Borrowed(data))));
        }
        if let Some(framed) = self.assembler.next(&mut data, message_bytes_max)? {
            if self.message.is_some() || !data.is_empty() || !self.assembler.is_empty() {
                return Err(Status::unimplemented("the call takes one message; more came"));
            }
            if end {
                return Ok(Some(framed));
            }
            self.message = Some(Framed { compressed: framed.compressed, bytes: framed.bytes.into_bytes() });
        }
        if end { self.finish().map(Some) } else { Ok(None) }
    }

    /// The message of a request that ended after it.
    fn finish(&mut self) -> Result<Framed<Payload<'static>>, Status> {
        if let Some(body) = self.assembler.take_complete() {
            return Ok(self.plan.unframed(Payload::Owned(body)));
        }
        if !self.assembler.is_empty() {
            return Err(unfinished());
        }
        let message = self.message.take().map(|message| message.owned());
        message.ok_or_else(|| Status::unimplemented("the call takes one message and none came"))
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.assembler.held_bytes() + self.message.as_ref().map_or(0, |message| message.bytes.len())
    }
}

/// Effect of a request's bytes.
pub(crate) struct Pushed {
    /// The call itself must be polled.
    pub(crate) must_poll: bool,
    /// A message is complete.
    pub(crate) has_message: bool,
}

/// Path of the rest of a request to its running handler.
pub(crate) enum Feed {
    /// None: the handler got the whole request.
    None,
    Messages(Arc<Inbox>, Assembler),
    Chunks(Arc<Inbox>),
}

impl Feed {
    /// Passes on body bytes.
    pub(crate) fn push(&mut self, mut data: &[u8], end: bool, message_bytes_max: usize) -> Pushed {
        let mut has_message = false;
        let must_poll = match self {
            Self::None => false,
            Self::Chunks(inbox) => {
                let mut marked = false;
                if !data.is_empty() {
                    marked |= inbox.push(Framed { compressed: false, bytes: Bytes::copy_from_slice(data) });
                }
                if end {
                    marked |= inbox.end(Ok(Metadata::new()));
                }
                marked
            }
            Self::Messages(inbox, assembler) => {
                let mut marked = false;
                loop {
                    let run = assembler.run(&mut data, message_bytes_max);
                    if !run.is_empty() {
                        has_message = true;
                        marked |= inbox.push_run(run);
                    }
                    match assembler.next(&mut data, message_bytes_max) {
                        Ok(Some(framed)) => {
                            has_message = true;
                            let bytes = framed.bytes.into_bytes();
                            marked |= inbox.push(Framed { compressed: framed.compressed, bytes });
                        }
                        Ok(None) => break,
                        Err(status) => {
                            marked |= inbox.end(Err(status));
                            break;
                        }
                    }
                }
                if end {
                    let is_finished = assembler.is_empty();
                    marked |= inbox.end(if is_finished { Ok(Metadata::new()) } else { Err(unfinished()) });
                }
                marked
            }
        };
        Pushed { must_poll, has_message }
    }

    /// Bytes the handler has not read.
    pub(crate) fn unread_bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Messages(inbox, assembler) => inbox.unread_bytes() + assembler.held_bytes(),
            Self::Chunks(inbox) => inbox.unread_bytes(),
        }
    }

    /// True if the handler has too much unread to read more.
    pub(crate) fn is_stalled(&self) -> bool {
        match self {
            Self::None => false,
            Self::Messages(inbox, _) | Self::Chunks(inbox) => inbox.stall(),
        }
    }
}

fn unfinished() -> Status {
    Status::internal("the request ends inside a message")
}

impl<T> Request<T> {
    /// The caller: the client that an interceptor put into the extensions, else the one at its address.
    pub fn client(&self) -> Client {
        let named = self.extensions().get::<Client>().cloned();
        named.unwrap_or_else(|| Client::at(self.remote_addr().map(|address| address.ip())))
    }
}
