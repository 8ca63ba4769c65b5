//! The key-value service over gRPC: wire messages in, domain calls, wire messages out. No rule and no limit lives here.

mod admin;
mod encode;
mod pairs;
mod range;
pub mod wire;

pub use admin::AdminService;
pub use pairs::PairsService;
use quire_rpc::{Code, Status};
pub use range::RangeService;

use crate::fault::Fault;

/// Tells the client when another try is worth it.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        match &fault {
            // The contract wants these two without a word.
            Fault::Exists => Self::already_exists(""),
            Fault::Missing => Self::not_found(""),
            Fault::Conflict(_) => Self::aborted(fault.to_string()),
            Fault::Limit { .. } => Self::resource_exhausted(fault.to_string()),
            Fault::Overloaded { retry_after } => {
                let mut status = Self::resource_exhausted(fault.to_string());
                // A name and digits are always valid.
                let _ = status.metadata_mut().insert(PUSHBACK, &retry_after.as_millis().to_string());
                status
            }
            Fault::Late => Self::new(Code::DeadlineExceeded, fault.to_string()),
            Fault::Unavailable(_) => Self::unavailable(fault.to_string()),
            Fault::OutcomeUnknown => Self::new(Code::Unknown, fault.to_string()),
        }
    }
}
