//! The load generator: its command line, protocols and reports.

mod cli;
mod clock;
mod grpc;
mod http;
mod null;
mod overload;
#[path = "../common/stalling.rs"]
mod stalling;
mod tcp;
mod template;
