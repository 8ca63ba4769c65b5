//! The bookstore: a catalogue that is read from memory and a ledger that sells limited stock durably.
//!
//! A transport ([`grpc`], HTTP paths below `/log`, or a console outside this crate) converts a request to domain types, calls a [`Bookstore`],
//! and converts the answer back. The [`Bookstore`] reads the [`catalogue`] and writes through the [`ledger`]; the path of
//! a purchase is one function in `ledger/transaction.rs`. Only [`store`] knows SQL. The crate opens no socket, reads no
//! configuration file and prints nothing.

pub mod bookstore;
pub mod catalogue;
mod cosign;
pub mod domain;

pub mod exchange;
pub mod fault;
pub mod generate;

pub mod grpc;
pub mod import;
pub mod ledger;
pub mod metrics;
pub mod money;
mod operators;
pub mod receipts;
mod rest;
pub mod sample;
pub mod search;
mod service;
pub mod settings;
mod shared_map;
pub mod store;
mod witness;

pub use bookstore::Bookstore;
pub use domain::{Actor, BookId, IdempotencyKey, Purchase, Receipt, Verdict};
pub use fault::{Fault, Limit};
pub use money::Cents;
pub use service::{BookstoreService, FILE_NAME};
pub use settings::{CommitMode, Limits, Reads, Settings};
