//! The messages and services of `proto/bookstore.proto`.

quire_rpc::include_proto!("bookstore");
