//! The repeated work of a load: open connections, make requests, report how each ended.
//!
//! Due times and recording are the same for every protocol, or their figures could not be compared.

pub mod grpc;
pub mod http;
pub mod socket;
pub mod tcp;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::template::Turn;

/// End of a request, with its times.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Time when the request, fully made, was handed to the transport: building it is not the server's time.
    pub sent_at: Instant,
    /// Arrival of the answer's first byte, where the transport reports it; for a stream, of its first message.
    pub first_byte_at: Option<Instant>,
    pub done_at: Instant,
    /// Ending; [`Workload::label`] names its number.
    pub ending: Ending,
}

impl Answer {
    /// A failure without an answer, now.
    pub(crate) fn failed(sent_at: Instant, number: u16) -> Self {
        let ending = Ending { number, is_error: true };
        Self { sent_at, first_byte_at: None, done_at: Instant::now(), ending }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The workload's number for it, below [`ENDINGS_MAX`].
    pub number: u16,
    pub is_error: bool,
}

/// Maximum endings of a workload; the recorder numbers its own from here on.
pub const ENDINGS_MAX: u16 = 1020;

/// Numbers of the distinct values of answers, in the order in which they come; shared by all sessions of a load.
#[derive(Debug)]
pub(crate) struct Values {
    known: Mutex<HashMap<Box<[u8]>, u16>>,
    max: u16,
}

impl Values {
    pub(crate) fn new(max: u16) -> Self {
        Self { known: Mutex::default(), max }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, u16>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of a value; the maximum, once there are so many others.
    pub(crate) fn number(&self, value: &[u8]) -> u16 {
        let mut known = self.lock();
        if let Some(number) = known.get(value) {
            return *number;
        }
        let next = u16::try_from(known.len()).map_or(self.max, |count| count.min(self.max));
        if next < self.max {
            known.insert(value.into(), next);
        }
        next
    }

    /// The value with this number; `None` for the maximum.
    pub(crate) fn value(&self, number: u16) -> Option<Box<[u8]>> {
        self.lock().iter().find(|(_, known)| **known == number).map(|(value, _)| value.clone())
    }
}

/// Bytes carried by the sockets of a connection so far, TLS included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From client to server.
    pub sent_bytes: u64,
    /// From server to client.
    pub received_bytes: u64,
}

/// A kind of request to one service. Every worker thread has a clone.
pub trait Workload: Clone + Send + Sync + 'static {
    type Session: Session;

    /// Opens the connection `number`, counted from 0, on the calling thread's runtime.
    fn open(&self, number: usize) -> impl Future<Output = anyhow::Result<Self::Session>>;

    /// Label of an ending: `OK`, `UNAVAILABLE`, `200`, `timeout`.
    fn label(&self, ending: u16) -> String;
}

/// A connection, shared by as many requests at once as the plan allows. It never leaves its thread.
pub trait Session: 'static {
    /// Makes one request and waits for the whole answer. Failures are endings: a run goes on after them, and a session
    /// with a broken connection opens another for the next request.
    ///
    /// The caller bounds the time: a future that is dropped must free what it holds.
    fn request(&self, turn: Turn) -> impl Future<Output = Answer>;

    /// Takes note of a request that is measured.
    #[inline]
    fn measured(&self, _number: u64, _answer: &Answer) {}

    /// Bytes carried so far, over all connections of this session.
    fn traffic(&self) -> Traffic;
}
