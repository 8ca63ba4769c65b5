//! The lean protocol: the game in frames over TCP, as specified in docs/lean-protocol.md.
//!
//! `frame`, `table`, [`Session`] (the server's end) and [`Connection`] (the client's) are sans-IO; only [`Server`] has
//! sockets and a clock.

mod client;
mod frame;
mod server;
mod session;
mod table;

pub use client::{Connection, Event, Keep};
pub use frame::{Fault, FaultCode, Hello, VERSION, Welcome};
pub(crate) use frame::{HEAD_BYTES, may_be_first};
pub use server::Server;
pub use session::{Admit, Session};
pub use table::{ENTRY_BYTES, Ring};

pub use crate::settings::{FRAME_BYTES_TARGET, LeanLimits as Limits, SessionLimits, TableLimits};
