//! The load generator: its command line, its protocols, and what it reports of a run.

mod cli;
mod clock;
mod grpc;
mod http;
mod null;
mod overload;
mod tcp;
mod template;
