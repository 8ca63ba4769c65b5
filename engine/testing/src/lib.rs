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
pub mod proto {
    quire_rpc::include_proto!("testing");
}

/// Generated from `interop.proto`.
pub mod interop_proto {
    quire_rpc::include_proto!("grpc.testing");
}

/// Generated from `conformance.proto`.
pub mod conformance_proto {
    quire_rpc::include_proto!("connectrpc.conformance.v1");
}
