//! Test services with every kind of method, and a server for them.
//!
//! Not for production: nothing here is bounded or validated as a service for untrusted clients must be.

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
