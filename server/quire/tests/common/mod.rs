//! Shared by the system tests: the server with its settings and clients, and an audit of its records.

pub(crate) mod audit;
pub(crate) mod disk;
pub(crate) mod http;
pub(crate) mod lost_pages;
pub(crate) mod process;
pub(crate) mod store;

pub(crate) use kit::{PATIENCE, poll, wait_for};

/// An address of this machine at which nothing listens.
pub(crate) const NOWHERE: &str = "127.0.0.1:1";
