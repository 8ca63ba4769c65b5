//! Endings of HTTP requests as numbers.

use std::time::Instant;

use crate::workload::{Answer, Ending};

/// A status is its own number; these are below all statuses.
pub(super) const CONNECTION: u16 = 0;
pub(super) const CLOSED: u16 = 1;
pub(super) const PROTOCOL: u16 = 2;
pub(super) const RESET: u16 = 3;
pub(super) const UNSENDABLE: u16 = 4;

/// Lowest status.
const STATUS_MIN: u16 = 100;
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

/// A request that ends now.
pub(super) fn ended(sent_at: Instant, first_byte_at: Option<Instant>, number: u16) -> Answer {
    let is_error = !(STATUS_MIN..ERROR_STATUS_MIN).contains(&number);
    Answer { sent_at, first_byte_at, done_at: Instant::now(), ending: Ending { number, is_error } }
}
