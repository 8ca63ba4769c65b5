//! The game over gRPC: the contract's calls, one message each, and our own stream with many. No rule lives here.

mod caller;
pub mod messages;
mod stream;
mod unary;
pub mod wire;

use quire_rpc::{Code, Status};

pub use caller::GAME_METADATA;
pub use stream::StreamService;
pub use unary::GameService;

use crate::refusal::Refusal;

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
