#![doc = include_str!("../README.md")]
//! Tables compiled once from descriptors drive both directions, without a message object in between. Time and memory
//! are linear in the input (lists that need sorting, and groups inside groups, aside). JSON has at most (L + 13) bytes
//! for each byte of the message, plus 32, where L is the length of the longest JSON name or enum value of the
//! contracts; a message has at most 8 bytes for each byte of JSON. Must not know HTTP, methods or statuses.
//!
//! Implements: protobuf's "`ProtoJSON` Format". Unknown JSON members and unknown enum names are ignored, as Connect
//! requires.

mod compile;
mod editions;
mod error;
mod known;
mod number;
mod read;
mod scan;
mod schema;
mod text;
pub mod wire;
mod write;

pub use editions::descriptors;
pub use error::Error;
pub use schema::{MessageId, Schema};

#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod speed_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrong_tests;

/// Nesting limit below the outermost message, the same as protobuf's own decoders'.
const DEPTH_MAX: usize = 100;
