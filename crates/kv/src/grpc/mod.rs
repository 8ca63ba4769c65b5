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
