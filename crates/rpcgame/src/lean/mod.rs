//! The lean protocol: the game in frames over TCP, as docs/lean-protocol.md draws them.
//!
//! `frame`, `table`, [`Session`] (the server's end) and [`Connection`] (the client's) take bytes and give bytes; only
//! [`Server`] has sockets and a clock. Must not know gRPC.

mod client;
mod fault;
mod frame;
mod server;
mod session;
mod table;

pub use client::{Connection, Event, Keep};
pub use fault::{Fault, FaultCode};
pub(crate) use frame::{HEAD_BYTES, may_be_first};
pub use frame::{Hello, VERSION, Welcome};
pub use server::{Limits, Server};
pub use session::{Session, SessionLimits};
pub use table::{ENTRY_BYTES, Ring, TableLimits};

/// What a frame must hold beside a name of the greatest length: a client closes a frame when it has
/// [`FRAME_BYTES_TARGET`], and the last name may be as long as any.
pub const FRAME_BYTES_BESIDE_NAME: usize = FRAME_BYTES_TARGET + 64;

/// Where a client closes a frame.
pub const FRAME_BYTES_TARGET: usize = 16 * 1024;
