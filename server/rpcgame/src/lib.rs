//! The RPC game: numbered messages, handled in order, hashed at both ends.
//!
//! [`game`] has the rules, [`Games`] keeps games by group, [`grpc`] and [`lean`] serve clients, and [`driver`] is the
//! client. Must not read a configuration, print, or choose an address.

pub mod counts;
pub mod driver;
pub mod game;
pub mod grpc;
pub mod lean;
mod metrics;
mod number;
mod refusal;
pub mod registry;
mod service;
mod settings;

pub use game::{Checksum, Sums, hash};
pub use refusal::Refusal;
pub use registry::{EndedGame, Games};
pub use service::RpcGameService;
pub use settings::{GameLimits, Group, LEAN_PORT, PORT, Settings};
