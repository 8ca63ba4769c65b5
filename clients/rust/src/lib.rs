#![doc = include_str!("../README.md")]
//! Must not depend on the command line; that is the module `cli`, with the feature of that name.

mod address;
mod attempts;
mod builder;
#[cfg(feature = "cli")]
pub mod cli;
mod client;
mod error;
mod items;
mod key;
mod lanes;
mod operator;
mod purchase;
mod reservation;
mod store;
mod values;
pub mod wire;

pub use builder::Builder;
pub use bytes::Bytes;
pub use client::Client;
pub use error::{Error, Fault};
pub use items::Items;
pub use key::Key;
pub use operator::{Operator, PriceChange};
pub use purchase::{Order, Outcome, Purchase, Receipt};
pub use quire_rpc::Code;
pub use reservation::{Reservation, Reserved};
pub use store::{Book, Cents};
pub use values::{Created, Deleted, Entry, Event, Updated, Value};

pub use wire::bookstore::{LogEntry, LogEntryKind, Topic};
