//! Test services: one of every shape, and a server around it.
//!
//! Must not be used by the product: nothing here is bounded or checked as a service for strangers must be.

mod conformance;
mod echo;
mod interop;
mod plain_http;

pub use conformance::Conformance;
pub use echo::EchoService;
pub use interop::InteropService;
pub use plain_http::PlainHttp;

/// Generated from `echo.proto`.
#[allow(missing_docs, clippy::pedantic, reason = "generated")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/testing.rs"));
}

/// Generated from `interop.proto`.
#[allow(missing_docs, clippy::pedantic, reason = "generated")]
pub mod interop_proto {
    include!(concat!(env!("OUT_DIR"), "/grpc.testing.rs"));
}

/// Generated from `conformance.proto`.
#[allow(missing_docs, clippy::pedantic, reason = "generated")]
pub mod conformance_proto {
    include!(concat!(env!("OUT_DIR"), "/connectrpc.conformance.v1.rs"));
}

/// Encoded descriptors of the test services.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/testing.bin"));
