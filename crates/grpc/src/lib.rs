//! gRPC over our own HTTP/2: a server and a channel, on tokio.
//!
//! Whoever knows tonic knows the shapes: generated traits with async methods, [`Request`], [`Response`], [`Status`],
//! [`Streaming`]. Must not know any service of the application.

mod body;
mod compression;
mod envelope;
mod io;
mod message;
mod metadata;
pub mod server;
mod status;
mod streaming;
mod timeout;
mod wake;

pub use body::{Body, BoxError};
pub use compression::Encoding;
pub use envelope::{Peer, Request, Response};
pub use futures_core::Stream;
pub use metadata::{Metadata, MetadataError};
pub use prost;
pub use server::{Limits, Server};
pub use status::{Code, Status};
pub use streaming::Streaming;
pub use tokio_rustls::rustls;
