//! Generated messages and stubs of `proto/`, for features that this library lacks.

/// The bookstore.
pub mod bookstore {
    quire_rpc::include_proto!("bookstore");
}

/// The key-value store.
pub mod kv {
    quire_rpc::include_proto!("io.grpc");
}

/// The server itself, for its operators.
pub mod quire {
    quire_rpc::include_proto!("quire");
}
