//! gRPC over our own HTTP/2: a server and a channel, on tokio.
//!
//! The shapes are tonic's: generated traits with async methods, [`Request`], [`Response`], [`Status`],
//! [`Streaming`]. Must not know any service of the application.

extern crate self as quire_rpc;

mod body;
pub mod client;
mod codec;
mod compression;
mod envelope;
pub mod health;
mod io;
mod message;
mod metadata;
pub mod reflection;
pub mod server;
mod status;
mod streaming;
mod timeout;
mod unfold;
mod wake;
pub mod wire;

pub use body::{Body, BoxError};
pub use codec::{Decode, Encode, Encoded, Ignored, Payload};
pub use compression::Encoding;
pub use envelope::{Peer, Request, Response};
pub use futures_core::Stream;
pub use metadata::{Metadata, MetadataError};
pub use prost;
pub use quire_http2 as http2;
pub use server::{Limits, Server};
pub use status::{Code, Reach, Status};
pub use streaming::Streaming;
pub use tokio_rustls::rustls;
pub use unfold::{Unfold, unfold};

/// Generated from `proto/`.
mod proto {
    #[allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic, reason = "generated")]
    pub(crate) mod health {
        include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
    }

    #[allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic, reason = "generated")]
    pub(crate) mod reflection {
        include!(concat!(env!("OUT_DIR"), "/grpc.reflection.v1.rs"));
    }
}
