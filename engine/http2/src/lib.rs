#![doc = include_str!("../README.md")]
//!
//! Must not know sockets, tasks or a clock: time enters as milliseconds that never go back, and what a request means is
//! the caller's business.

mod config;
mod connection;
mod error;
mod field;
mod frame;
mod head;
mod hpack;
mod output;
mod streams;

pub use config::{Config, Rate};
pub use connection::{CompleteRequest, Connection, Event, Side};
pub use error::{ConnectionError, ErrorCode, StreamError};
pub use field::{Field, is_hop_by_hop};
pub use frame::{FRAME_BYTES_DEFAULT, FRAME_BYTES_MAX, HEAD_BYTES, PREFACE, WINDOW_MAX};
pub use head::Head;
pub use hpack::{CachedBlock, Indexing};
pub use output::Output;
pub use streams::StreamKey;
