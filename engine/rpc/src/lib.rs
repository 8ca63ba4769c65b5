#![doc = include_str!("../README.md")]
//!
//! Must not know any service of the application.

#![cfg_attr(
    not(all(
        feature = "client",
        feature = "gzip",
        feature = "http1",
        feature = "server",
        feature = "tls",
        feature = "zstd"
    )),
    allow(unused, unreachable_pub, clippy::ptr_arg, reason = "a part serves several features")
)]

extern crate self as quire_rpc;

/// Includes the code that `quire_rpc_build` generated from a package in the calling module: messages, services,
/// clients, and the contracts as `DESCRIPTORS`. The name of a contract without a package is empty.
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

#[cfg(any(feature = "server", feature = "tower"))]
mod body;
#[cfg(feature = "client")]
pub mod client;
pub mod details;
mod envelope;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(all(feature = "client", feature = "server"))]
mod in_memory;
mod interceptor;
mod io;
#[cfg(any(feature = "client", feature = "server"))]
mod lifetime;
mod message;
mod metadata;
mod protocol;
#[cfg(feature = "server")]
pub mod server;
mod services;
mod status;
mod timeout;
mod trace;
mod unfold;
mod wake;

#[cfg(any(feature = "server", feature = "tower"))]
pub use body::{Body, BoxError};
pub use envelope::{Peer, PeerCredentials, Request, Response};
pub use futures_core::Stream;
pub use interceptor::{Interceptor, Until};
pub use message::codec::{Decode, Encode, Encoded, Ignored, Payload};
pub use message::compression::Encoding;
pub use message::streaming::Streaming;
pub use metadata::{Metadata, MetadataError};
pub use prost;
pub use prost_types;
pub use quire_http2 as http2;
pub use quire_json::wire;
#[cfg(feature = "server")]
pub use server::{Limits, Server};
#[cfg(feature = "channelz")]
pub use services::channelz;
#[cfg(feature = "health")]
pub use services::health;
pub use status::{Code, Details, Reach, Status};
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;
pub use trace::TraceContext;
pub use unfold::{Unfold, unfold};
