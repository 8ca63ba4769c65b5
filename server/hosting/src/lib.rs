//! The interface between a server and its services, and their shared parts: settings, units, ports, the operator's
//! credential, metrics.
//!
//! Must not know any service, nor where the values of settings come from.

pub mod access;
pub mod address;
pub mod files;
pub mod metrics;
pub mod names;
mod per_second;
mod ports;
mod service;
mod settings;

pub use per_second::PerSecond;
pub use ports::{Acceptor, Connections, Port, Sockets, UNBOUNDED, Wanted, Warnings};
pub use quire_net::{Client, Live, Permit, Share, Shares};
pub use service::{
    Choice, Declared, Entry, Front, Guard, Handles, Host, Observe, Open, Part, Pending, Route, Service, Serving, Site,
    entry,
};
pub use settings::{
    Bytes, Given, InForce, Layers, Meanings, Numbers, Reader, Refused, Setting, Settings, SettingsInForce, defaults,
    time,
};

/// Reason why a service cannot be opened or served. The text is for the operator.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
