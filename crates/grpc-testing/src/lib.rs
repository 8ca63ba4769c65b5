//! Test services: one of every shape, and a server around it.
//!
//! Must not be used by the product: nothing here is bounded or checked as a service for strangers must be.

mod echo;
mod plain_http;

pub use echo::EchoService;
pub use plain_http::PlainHttp;

/// Generated from `echo.proto`.
#[allow(missing_docs, clippy::pedantic, reason = "generated")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/testing.rs"));
}

/// Encoded descriptors of the test services.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/testing.bin"));
