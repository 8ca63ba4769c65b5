//! Handling of connections common to every listener and protocol: [`accept`] distributes them over threads and
//! drains them at the end, [`Permits`] bound their number, [`Shares`] divide other limits among clients, and
//! [`handshake`](fn@handshake) opens TLS.
//!
//! Must not know any protocol above TCP and TLS.

mod accept;
mod live;
mod permits;
mod shares;
#[cfg(feature = "tls")]
mod tls;

pub use accept::{Accept, QUIET_MAX, accept, before, turned_on};
pub use live::Live;
pub use permits::{Permit, Permits, Standing};
pub use shares::{Apart, CallPermits, Caller, Client, Share, Shares};
#[cfg(feature = "tls")]
pub use tls::{HandshakeError, handshake};
