//! The messages and services of `proto/bookstore.proto`.

#![allow(
    missing_docs,
    clippy::pedantic,
    unreachable_pub,
    unused_qualifications,
    reason = "generated from the contract, which has the comments"
)]

include!(concat!(env!("OUT_DIR"), "/bookstore.rs"));

/// The contract in the form that reflection serves.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bookstore.bin"));
