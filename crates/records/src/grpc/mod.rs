//! Record queries over gRPC: wire messages in, domain calls, shared slices out. No rule and no limit lives here.

mod reader;
mod shape;
mod stream;

use ::grpc::Status;

pub use self::{reader::ReaderGrpc, stream::StreamGrpc};
use crate::fault::Fault;

/// The messages and services of `proto/records.proto`.
#[allow(
    missing_docs,
    clippy::pedantic,
    unreachable_pub,
    unused_qualifications,
    reason = "generated from the contract, which has the comments"
)]
pub mod wire {
    include!(concat!(env!("OUT_DIR"), "/_.rs"));

    /// The contract in the form that reflection serves.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/records.bin"));
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let said = fault.to_string();
        match fault {
            Fault::NoFile => Self::failed_precondition(said),
            Fault::Invalid(_) | Fault::NoColumn { .. } => Self::invalid_argument(said),
            Fault::AnswerBytes { .. } | Fault::Busy { .. } => Self::resource_exhausted(said),
            Fault::Failed => Self::internal(said),
        }
    }
}
