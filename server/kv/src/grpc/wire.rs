//! The messages and services of `proto/kv.proto`.

quire_rpc::include_proto!("io.grpc");
