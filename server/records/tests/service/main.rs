//! The service as its callers meet it, over gRPC and HTTP/1.1 on one port, and as the program that embeds it does.

mod answers;
mod common;
mod conditions;
mod files;
mod limits;
mod streams;
