#![doc = include_str!("../README.md")]
//!
//! Must not know any service of the application.

extern crate self as quire_rpc;

mod body;
pub mod client;
mod codec;
mod compression;
mod details;
mod envelope;
#[doc(hidden)]
pub mod fuzzing;
pub mod health;
mod io;
mod json;
mod message;
mod metadata;
mod protocol;
mod reflection;
pub mod server;
mod status;
mod streaming;
mod text;
mod timeout;
mod transcode;
mod unfold;
mod wake;
pub mod wire;

pub use body::{Body, BoxError};
pub use codec::{Decode, Encode, Encoded, Ignored, Payload};
pub use compression::Encoding;
pub use details::Details;
pub use envelope::{Peer, Request, Response};
pub use futures_core::Stream;
pub use metadata::{Metadata, MetadataError};
pub use prost;
pub use prost_types;
pub use quire_http2 as http2;
pub use server::{Limits, Server};
pub use status::{Code, Reach, Status};
pub use streaming::Streaming;
pub use tokio_rustls::rustls;
pub use unfold::{Unfold, unfold};

/// The code that `quire_rpc_build` made of a package, in the module that calls this: messages, services, clients, and
/// `DESCRIPTORS`, the contracts. The name of a contract without a package is empty.
///
/// ```
/// pub mod hello {
///     quire_rpc::include_proto!("hello");
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! include_proto {
    ("") => {
        $crate::include_proto!("_");
    };
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// Generated from `proto/`.
mod proto {
    pub(crate) mod health {
        include_proto!("grpc.health.v1");
    }

    pub(crate) mod reflection {
        include_proto!("grpc.reflection.v1");
    }
}
