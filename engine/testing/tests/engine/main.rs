//! The engine's channel against the engine's server, over sockets.

mod addresses;
mod calls;
mod cancellation;
mod channels;
mod connections;
mod deadlines;
mod failures;
mod http1_channel;
mod lifetimes;
mod limits;
mod pages;
mod protocols;
mod raw;
mod refusals;
mod registry;
mod retries;
mod standard;
#[path = "../support/mod.rs"]
mod support;
mod tower;
mod traces;
mod transparent;
