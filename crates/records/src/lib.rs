//! Equality queries on the columns of a CSV file.
//!
//! [`grpc`] speaks to clients. Nothing here opens a socket, reads a configuration file or prints.

pub mod generate;
pub mod grpc;
