//! Commands of callers to a connection, and its results.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::http_head::HttpHead;
use super::path::PathRef;
use crate::compression::Encoding;
use crate::inbox::Inbox;
use crate::message::{Framed, Framing, PREFIX_BYTES};
use crate::metadata::Metadata;
use crate::protocol::ClientDialect;
use crate::status::{Reach, Status};

/// A failure, and whether the server is known to have done nothing.
pub(super) struct Failure {
    pub(super) status: Status,
    pub(super) untouched: bool,
    /// See [`RawReply::head_at`].
    pub(super) head_at: Option<std::time::Instant>,
}

impl Failure {
    pub(super) fn new(status: Status, untouched: bool) -> Self {
        let status = if untouched { status.with_reach(Reach::Untouched) } else { status };
        Self { status, untouched, head_at: None }
    }
}

/// The response to a unary call, not yet decoded.
#[derive(Debug)]
pub(super) struct RawReply {
    pub(super) metadata: Metadata,
    pub(super) encoding: Option<Encoding>,
    pub(super) message: Framed<Bytes>,
    pub(super) trailers: Metadata,
    /// Time when the head was read, if requested.
    pub(super) head_at: Option<std::time::Instant>,
}

/// The beginning of a streaming response.
pub(super) struct RawStream {
    pub(super) metadata: Metadata,
    pub(super) encoding: Option<Encoding>,
    pub(super) inbox: Arc<Inbox>,
}

/// Outgoing messages, encoded as there is room for them.
pub(super) trait Outgoing: Send {
    /// Appends the next framed message; `false` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<bool, Status>>;
}

pub(super) enum ReplyTo {
    Unary(oneshot::Sender<Result<RawReply, Failure>>),
    Stream(oneshot::Sender<Result<RawStream, Failure>>),
}

pub(super) enum Body {
    Message(Vec<u8>),
    /// A message that other calls may share.
    Shared(Bytes),
    Messages(Box<dyn Outgoing>),
}

impl Body {
    /// True if the single message is compressed.
    pub(super) fn is_compressed(&self) -> bool {
        match self {
            Self::Message(framed) => framed.first() == Some(&1),
            Self::Shared(framed) => framed.first() == Some(&1),
            Self::Messages(_) => false,
        }
    }
}

/// HTTP form of a request.
pub(super) enum Form {
    /// A call by POST.
    Post,
    /// A call by POST, with another codec or compression than its channel's.
    OwnPost,
    /// A call by GET; the path and query contain the message.
    Get(String),
    /// A plain HTTP request.
    Http(Arc<HttpHead>),
}

/// A call for a connection to make.
pub(super) struct Start {
    pub(super) number: u64,
    pub(super) path: PathRef,
    pub(super) dialect: ClientDialect,
    pub(super) form: Form,
    pub(super) metadata: Metadata,
    pub(super) deadline: Option<Instant>,
    pub(super) waits_for_ready: bool,
    pub(super) compression: Option<Encoding>,
    /// Limit of a received message, also after decompression.
    pub(super) message_bytes_max: usize,
    /// True if the caller wants the time of the response's head.
    pub(super) is_timed: bool,
    /// True if the caller discards the response's message; it is returned empty.
    pub(super) is_unread: bool,
    pub(super) body: Body,
    pub(super) reply_to: ReplyTo,
}

impl Start {
    pub(super) fn is_get(&self) -> bool {
        matches!(self.form, Form::Get(_))
    }

    /// True if the request ends with its head.
    pub(super) fn is_bodiless(&self) -> bool {
        match &self.form {
            Form::Post | Form::OwnPost => false,
            Form::Get(_) => true,
            Form::Http(head) => head.is_bodiless,
        }
    }

    /// Start of the body within the framed message: some protocols omit the prefix.
    pub(super) fn body_start(&self) -> usize {
        let is_whole = self.dialect.framing() == Framing::Whole && !matches!(self.form, Form::Http(_));
        if is_whole { PREFIX_BYTES } else { 0 }
    }
}

/// A command to a connection.
pub(super) enum Command {
    /// Connects, without a call.
    Connect,
    Start(Start),
    /// Cancels the call of this number.
    Cancel(u64),
}

impl Command {
    pub(super) fn waits_for_ready(&self) -> bool {
        matches!(self, Self::Start(start) if start.waits_for_ready)
    }

    pub(super) fn fail(self, status: &Status, untouched: bool) {
        if let Self::Start(start) = self {
            start.reply_to.fail(status.clone(), untouched);
        }
    }
}

impl ReplyTo {
    pub(super) fn fail(self, status: Status, untouched: bool) {
        // If the caller is gone, the failure is dropped.
        match self {
            Self::Unary(to) => drop(to.send(Err(Failure::new(status, untouched)))),
            Self::Stream(to) => drop(to.send(Err(Failure::new(status, untouched)))),
        }
    }
}
