//! The interface between a server and its services, and their shared parts: settings, units, ports, the operator's
//! credential, metrics.
//!
//! Must not know any service, nor where the values of settings come from.

pub mod access;
pub mod address;
mod connections;
mod error;
pub mod files;
pub mod metrics;
pub mod names;
mod port;
mod service;
mod settings;
mod units;
mod warnings;

pub use connections::{Connections, Wanted};
pub use error::Error;
pub use port::{Port, listen, listen_beside};
pub use quire_rpc::server::{Client, Place, Places, Share, Shares};
pub use service::{
    Choice, Declared, Entry, Guard, Host, Observe, Open, Part, Pending, Route, Service, Serving, Site, entry,
};
pub use settings::{Given, Layers, Meanings, Reader, Refused, Setting, Settings, defaults};
pub use units::{Bytes, time};
pub use warnings::Warnings;
