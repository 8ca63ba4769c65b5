//! Test services with every kind of method, and a server for them.
//!
//! Not for production: nothing here is bounded or validated as a service for untrusted clients must be.

mod conformance;
mod echo;
mod interop;

pub use conformance::Conformance;
pub use echo::{EchoService, PlainHttp};
pub use interop::InteropService;

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
