//! Record queries over gRPC: wire messages in, domain calls, shared slices out. No rule and no limit lives here.

mod reader;
mod shape;
mod stream;
pub mod wire;

use quire_rpc::{Code, Status};

pub use self::{reader::ReaderGrpc, stream::StreamGrpc};
use crate::fault::Fault;

/// Retry pushback in milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let said = fault.to_string();
        match fault {
            Fault::NoFile => Self::failed_precondition(said),
            Fault::Invalid(_) | Fault::NoColumn { .. } => Self::invalid_argument(said),
            Fault::AnswerBytes { .. } | Fault::Busy { .. } => Self::resource_exhausted(said),
            Fault::Overloaded { retry_after } => {
                let mut status = Self::resource_exhausted(said);
                // A name and digits are always valid.
                let _ = status.metadata_mut().insert(PUSHBACK, &retry_after.as_millis().to_string());
                status
            }
            Fault::Late => Self::new(Code::DeadlineExceeded, said),
            Fault::Failed => Self::internal(said),
        }
    }
}
