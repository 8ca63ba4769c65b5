//! A connection's state of each call, from head to end.

use std::sync::Arc;

use bytes::Bytes;
use quire_http2::{Head, StreamKey};
use tokio::time::Instant;

use super::plan::CallPlan;
use super::reply::ReplyState;
use super::running::Running;
use super::shares::CallPlaces;
use crate::envelope::Request;
use crate::inbox::Inbox;
use crate::interceptor::Ending;
use crate::message::{Assembler, Framed};
use crate::metadata::Metadata;
use crate::status::{Code, Status};

/// An incomplete request that its handler needs whole.
pub(super) struct Gathering {
    pub(super) plan: CallPlan,
    pub(super) head: Arc<Head>,
    /// The request without its message, after the interceptors; `None` if there are none.
    pub(super) request: Option<Box<Request<()>>>,
    pub(super) assembler: Assembler,
    pub(super) message: Option<Framed<Bytes>>,
    pub(super) expires_at: Instant,
}

/// Path of the rest of a request to its running handler.
pub(super) enum Feed {
    /// None: the handler got the whole request.
    None,
    Messages(Arc<Inbox>, Assembler),
    Chunks(Arc<Inbox>),
}

pub(super) struct Active {
    /// The method's number; `None` for HTTP that is not gRPC.
    pub(super) method: Option<usize>,
    pub(super) running: Box<dyn Running>,
    pub(super) reply: ReplyState,
    pub(super) feed: Feed,
    /// Bytes received and not yet returned to the stream's window.
    pub(super) unreleased: usize,
    pub(super) deadline: Option<Instant>,
    pub(super) _places: CallPlaces,
    /// Ends the call from outside.
    pub(super) ending: Option<Ending>,
}

#[derive(Default)]
pub(super) enum Phase {
    #[default]
    Free,
    Gathering(Gathering),
    Active(Active),
    /// Answered while the peer is still sending.
    Discarding(Rest),
}

pub(super) struct Slot {
    pub(super) stream: StreamKey,
    pub(super) phase: Phase,
    pub(super) started_at: Instant,
}

impl Slot {
    /// Clears the slot, which is mostly empty.
    #[inline]
    pub(super) fn free(&mut self) {
        if !matches!(self.phase, Phase::Free) {
            self.phase = Phase::Free;
        }
    }
}

/// Limits on request data after the answer.
pub(super) struct Rest {
    pub(super) left_bytes: usize,
    pub(super) expires_at: Instant,
}

/// Equal answered calls that are not reported yet.
pub(super) struct Ended {
    /// `None` for a method that does not exist.
    pub(super) method: Option<usize>,
    pub(super) code: Code,
    pub(super) started_at: Instant,
    pub(super) calls: u32,
}

impl Gathering {
    pub(super) fn held_bytes(&self) -> usize {
        self.assembler.held_bytes() + self.message.as_ref().map_or(0, |message| message.bytes.len())
    }
}

impl Feed {
    /// Passes on body bytes; true if the call itself must be polled.
    pub(super) fn push(&mut self, mut data: &[u8], end: bool, message_bytes_max: usize) -> bool {
        match self {
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
                        marked |= inbox.push_run(run);
                    }
                    match assembler.next(&mut data, message_bytes_max) {
                        Ok(Some(framed)) => {
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
                    let whole = assembler.is_empty();
                    let last = Status::internal("the request ends inside a message");
                    marked |= inbox.end(if whole { Ok(Metadata::new()) } else { Err(last) });
                }
                marked
            }
        }
    }

    /// Bytes the handler has not read.
    pub(super) fn unread_bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Messages(inbox, assembler) => inbox.unread_bytes() + assembler.held_bytes(),
            Self::Chunks(inbox) => inbox.unread_bytes(),
        }
    }

    /// True if the handler has too much unread to read more.
    pub(super) fn is_stalled(&self) -> bool {
        match self {
            Self::None => false,
            Self::Messages(inbox, _) | Self::Chunks(inbox) => inbox.stall(),
        }
    }
}
