//! The messages and services of `proto/records.proto` and `proto/reader.proto`.

quire_rpc::include_proto!("");

/// `ReaderService` in the package `reader`.
pub mod reader {
    quire_rpc::include_proto!("reader");
}
