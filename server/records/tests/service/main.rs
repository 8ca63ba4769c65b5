//! The service from the callers' point of view, over gRPC and HTTP/1.1 on one port, and from that of the embedding
//! program.

mod answers;
mod common;
mod conditions;
mod files;
mod limits;
mod streams;
