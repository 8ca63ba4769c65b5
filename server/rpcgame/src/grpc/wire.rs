//! The messages and services of `proto/rpcgame.proto`.

quire_rpc::include_proto!("");
