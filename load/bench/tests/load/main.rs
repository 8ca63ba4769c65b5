//! The load generator: its command line, protocols and reports.

mod cli;
mod clock;
mod grpc;
mod http;
mod null;
mod overload;
mod tcp;
mod template;
