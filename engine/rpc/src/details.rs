//! `google.rpc.Status`: an error as machines read it, with messages of any type as its details.
//!
//! Implements: google/rpc/status.proto, the "richer error model" of gRPC.

use prost_types::Any;

/// An error with its details. A [`Status`](crate::Status) carries it encoded.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Details {
    /// The code's number.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// For machines: `google.rpc.BadRequest`, `google.rpc.RetryInfo` and messages of the service's own.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}
