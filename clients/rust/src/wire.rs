//! Messages and stubs as `proto/` has them, for what this library leaves out.

/// The bookstore.
pub mod bookstore {
    quire_rpc::include_proto!("bookstore");
}

/// The key-value store.
pub mod kv {
    quire_rpc::include_proto!("io.grpc");
}
