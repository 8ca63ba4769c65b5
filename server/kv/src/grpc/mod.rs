//! The key-value service over gRPC: converts between wire messages and domain calls. No rule or limit lives here.

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

/// Metadata with the delay before a retry.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        match &fault {
            // The contract requires these two without text.
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
