//! The messages and services of `proto/records.proto`.

quire_rpc::include_proto!("");
