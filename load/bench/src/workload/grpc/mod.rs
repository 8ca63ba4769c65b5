//! Calls in gRPC, gRPC-Web and Connect over our own channel, one connection per session.
//!
//! Messages are bytes here: they are encoded before a call is timed, and an answer is decoded only if its ending
//! depends on it.

mod call;
mod endings;
mod payload;
mod schema;
mod target;
mod trace;

pub use call::{GrpcSession, GrpcWorkload, REPLY_BYTES_MAX};
pub use endings::{Classify, Endings, OWN_ENDINGS_FIRST, OutcomeField};
pub use payload::{DATA_BYTES_MAX, MESSAGES_MAX, Payload, Requests, example, message_from_json};
pub use schema::{DESCRIPTOR_FILES_MAX, Schema, Shape, split_method};
pub use target::Target;
pub use trace::Traces;
