//! How requests end, as numbers, and the times of one under way.

use std::time::Instant;

use crate::workload::{Answer, Ending};

/// A status is its own number; these are below the lowest.
pub(super) const CONNECTION: u16 = 0;
pub(super) const CLOSED: u16 = 1;
pub(super) const PROTOCOL: u16 = 2;
pub(super) const RESET: u16 = 3;
pub(super) const UNSENDABLE: u16 = 4;

/// Lowest status that counts as an error.
const ERROR_STATUS_MIN: u16 = 400;

pub(super) fn label(ending: u16) -> String {
    match ending {
        CONNECTION => "connection".into(),
        CLOSED => "closed".into(),
        PROTOCOL => "protocol".into(),
        RESET => "reset".into(),
        UNSENDABLE => "unsendable".into(),
        status => status.to_string(),
    }
}

/// The times of a request under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch {
    sent_at: Instant,
    first_byte_at: Option<Instant>,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self { sent_at: Instant::now(), first_byte_at: None }
    }

    pub(super) fn head_is_there(&mut self) {
        self.head_was_there_at(Some(Instant::now()));
    }

    pub(super) fn head_was_there_at(&mut self, at: Option<Instant>) {
        self.first_byte_at = at;
    }

    pub(super) fn answered(self, number: u16) -> Answer {
        self.ended(Ending { number, is_error: number >= ERROR_STATUS_MIN })
    }

    pub(super) fn failed(self, number: u16) -> Answer {
        self.ended(Ending { number, is_error: true })
    }

    fn ended(self, ending: Ending) -> Answer {
        Answer { sent_at: self.sent_at, first_byte_at: self.first_byte_at, done_at: Instant::now(), ending }
    }
}
