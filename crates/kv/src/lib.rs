//! A key-value service: a concurrent map that is atomic per key, in memory or on disk as well.
//!
//! The way of a request: a transport ([`grpc`]) turns what it was sent into domain types, asks a [`KeyValue`], and
//! turns the answer back. The [`KeyValue`] reads the table and writes to it, through the journal where writes are to
//! last. Nothing here opens a socket, reads a configuration file or prints.

mod clock;
mod entry;
mod expiry;
mod fault;
pub mod grpc;
mod index;
mod journal;
mod service;
mod settings;
mod table;
mod timer;
mod usage;
mod watch;
mod write;

pub use clock::Clock;
pub use entry::{Entry, Key, Value, Version};
pub use fault::{Fault, Limit};
pub use journal::OpenError;
pub use service::{KeyValue, Levels, Scan};
pub use settings::{Durability, Limits, Settings, StoreKind};
pub use timer::sleep;
pub use watch::{Event, EventKind, Watch};
