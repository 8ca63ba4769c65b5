//! The key-value service over gRPC: wire messages in, domain calls, wire messages out. No rule and no limit lives here.

mod admin;
mod encode;
mod pairs;
mod range;

use std::time::Duration;

use ::grpc::{Code, Status};
pub use admin::AdminService;
pub use pairs::PairsService;
pub use range::RangeService;

use crate::fault::Fault;

/// The messages and services of `proto/kv.proto`.
#[allow(
    missing_docs,
    clippy::pedantic,
    unreachable_pub,
    unused_qualifications,
    reason = "generated from the contract, which has the comments"
)]
pub mod wire {
    include!(concat!(env!("OUT_DIR"), "/io.grpc.rs"));

    /// The contract in the form that reflection serves.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kv.bin"));
}

/// As messages have it, where 0 is for ever.
fn time_to_live(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        match &fault {
            // The contract wants these two without a word.
            Fault::Exists => Self::already_exists(""),
            Fault::Missing => Self::not_found(""),
            Fault::Conflict(_) => Self::aborted(fault.to_string()),
            Fault::Limit { .. } => Self::resource_exhausted(fault.to_string()),
            Fault::Unavailable(_) => Self::unavailable(fault.to_string()),
            Fault::OutcomeUnknown => Self::new(Code::Unknown, fault.to_string()),
        }
    }
}
