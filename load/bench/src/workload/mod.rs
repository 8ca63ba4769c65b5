//! What a load does again and again: open connections, make requests, say how each ended.
//!
//! Must not know when requests are due or what becomes of their times: that is the same for every protocol, or
//! figures of two protocols could not be compared.

pub mod channel;
pub mod grpc;
pub mod http;
pub mod socket;
pub mod tcp;

use std::future::Future;
use std::time::Instant;

use crate::template::Turn;

/// How a request ended and when.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// When the request was handed to the transport, fully made: building it is not the server's time.
    pub sent_at: Instant,
    /// When the first byte of the answer was there, where the transport can tell; for a stream, its first message.
    pub first_byte_at: Option<Instant>,
    /// When the whole answer was there.
    pub done_at: Instant,
    /// How it ended, a number of the workload's own that [`Workload::label`] puts into words.
    pub ending: Ending,
}

impl Answer {
    /// A failure without an answer, now.
    pub(crate) fn failed(sent_at: Instant, number: u16) -> Self {
        let ending = Ending { number, is_error: true };
        Self { sent_at, first_byte_at: None, done_at: Instant::now(), ending }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The workload's number for it, below [`ENDINGS_MAX`].
    pub number: u16,
    /// Whether it counts as an error.
    pub is_error: bool,
}

/// Endings that a workload can tell apart; the recorder numbers its own from here on.
pub const ENDINGS_MAX: u16 = 1020;

/// Bytes that went over the sockets of a connection so far, TLS included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From client to server.
    pub sent_bytes: u64,
    /// From server to client.
    pub received_bytes: u64,
}

/// A kind of request to one service. Every worker thread has a clone.
pub trait Workload: Clone + Send + Sync + 'static {
    /// A connection.
    type Session: Session;

    /// Opens the connection `number`, counted from 0, on the calling thread's runtime.
    fn open(&self, number: usize) -> impl Future<Output = anyhow::Result<Self::Session>>;

    /// The ending in words: `OK`, `UNAVAILABLE`, `200`, `timeout`.
    fn label(&self, ending: u16) -> String;
}

/// A connection; requests share it, as many at once as the plan says. It never leaves its thread.
pub trait Session: 'static {
    /// Makes one request and waits for the whole answer. Failures are endings: a run goes on after them, and a
    /// session whose connection broke opens another for the next request.
    ///
    /// The caller bounds the time: a future that is dropped must free what it holds.
    fn request(&self, turn: Turn) -> impl Future<Output = Answer>;

    /// What the sockets carried, over all connections of this session.
    fn traffic(&self) -> Traffic;
}
