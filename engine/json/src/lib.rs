#![doc = include_str!("../README.md")]
//!
//! Tables made once from descriptors drive both ways, and no message object is built in between. Time and memory are
//! linear in the input (lists that need sorting, and groups inside groups, aside). With L the bytes of the longest JSON
//! name or enum value of the contracts, JSON has at most (L + 13) bytes for each byte of the message, and 32 more; a
//! message has at most 8 bytes for each byte of JSON. Must not know HTTP, methods or statuses.
//!
//! Implements: protobuf's "`ProtoJSON` Format". Unknown JSON members and unknown enum names are ignored, as
//! Connect requires. The features of editions are not read: a file of an edition has the defaults of 2023, fields with
//! presence and packed numbers.

mod compile;
mod error;
mod key;
mod known;
mod lengths;
mod number;
mod parts;
mod read;
mod scan;
mod schema;
mod seen;
mod text;
mod time;
mod values;
pub mod wire;
mod write;

pub use error::Error;
pub use schema::{MessageId, Schema};

#[cfg(test)]
mod known_tests;
#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod speed_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrong_tests;

/// Levels of messages below the outermost one: protobuf's own decoders stop here as well.
const DEPTH_MAX: usize = 100;
