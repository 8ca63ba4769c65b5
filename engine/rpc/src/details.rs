//! `google.rpc.Status`: a machine-readable error, with messages of any type as its details.
//!
//! Implements: google/rpc/status.proto, the "richer error model" of gRPC.

use prost_types::Any;

/// An error with its details. A [`Status`](crate::Status) carries it encoded.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Details {
    /// The code's number.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Message for people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Details for machines: `google.rpc.BadRequest`, `google.rpc.RetryInfo` and the service's own messages.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}
