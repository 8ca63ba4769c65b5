//! The game over gRPC: the contract's calls, one message each, and a stream of ours with many. No rule lives here.

mod caller;
pub mod messages;
mod stream;
mod unary;

use ::grpc::{Code, Status};

pub use caller::GAME_METADATA;
pub use stream::StreamService;
pub use unary::GameService;

use crate::refusal::Refusal;

/// The messages and services of `proto/rpcgame.proto`.
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
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rpcgame.bin"));
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Number { .. }
            | Refusal::SerialZero
            | Refusal::Duplicate { .. }
            | Refusal::NotText
            | Refusal::NameTooLong { .. }
            | Refusal::Malformed(_)
            | Refusal::Unpaired { .. }
            | Refusal::GameName { .. } => Code::InvalidArgument,
            Refusal::TooFarAhead { .. } | Refusal::NoRoomToWait { .. } | Refusal::TooManyGames { .. } => {
                Code::ResourceExhausted
            }
            // Sending it again helps only after the missing one.
            Refusal::Missing { .. } => Code::FailedPrecondition,
            Refusal::Over { .. } => Code::Aborted,
        };
        Self::new(code, refusal.to_string())
    }
}

/// A checksum as it travels: 16 lower-case hexadecimal digits.
fn digits(checksum: u64) -> Vec<u8> {
    format!("{checksum:016x}").into_bytes()
}
