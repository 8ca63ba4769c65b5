//! `quire.Operator` over gRPC.

/// The messages and services of `proto/operator.proto`.
pub mod wire {
    quire_rpc::include_proto!("quire");
}
