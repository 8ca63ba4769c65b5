//! The services beside the bookstore: each is opened, served, counted and closed in a file of its own.

pub(crate) mod kv;
pub(crate) mod records;
pub(crate) mod rpcgame;
pub(crate) mod tasks;
