//! HTTP/2 (RFC 9113) and HPACK (RFC 7541) as a state machine.
//!
//! Bytes go in, events come out; commands go in, bytes come out into one [`Output`]. There are no sockets, no tasks and
//! no clock here: time enters as milliseconds that never go back. What a request means is the caller's business.

mod budget;
mod config;
mod connection;
mod error;
mod field;
mod frame;
mod head;
mod hpack;
mod output;
mod settings;
mod streams;

pub use config::{Config, Rate};
pub use connection::{Connection, Event, Side};
pub use error::{ConnectionError, ErrorCode, StreamError};
pub use field::Field;
pub use frame::{FRAME_BYTES_DEFAULT, FRAME_BYTES_MAX, HEAD_BYTES, PREFACE, WINDOW_MAX};
pub use head::Head;
pub use hpack::{CachedBlock, Indexing};
pub use output::Output;
pub use streams::StreamKey;
