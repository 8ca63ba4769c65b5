//! A message decodes into at most `2 × S` bytes for each of its own, where `S` is the largest struct in its lists.
//!
//! The worst message has lists of one empty message: two bytes each, for which prost's `Vec` allocates four structs.
//!
//! Allocations are counted for all threads, so this process holds one test.

use std::alloc::System;

use quire_rpc::prost::{self, Message};
use quire_rpc::{Decode, Payload};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MESSAGE_BYTES: usize = 64 * 1024;

/// A struct of 256 bytes.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "prost")]
struct Leaf {
    #[prost(message, optional, tag = "1")]
    texts: Option<Texts>,
    #[prost(message, optional, tag = "2")]
    more: Option<Texts>,
    #[prost(uint64, tag = "3")]
    number: u64,
    #[prost(uint64, tag = "4")]
    other: u64,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "prost")]
struct Texts {
    #[prost(string, tag = "1")]
    a: String,
    #[prost(string, tag = "2")]
    b: String,
    #[prost(string, tag = "3")]
    c: String,
    #[prost(string, tag = "4")]
    d: String,
    #[prost(string, tag = "5")]
    e: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "prost")]
struct Branch {
    #[prost(message, repeated, tag = "1")]
    a: Vec<Leaf>,
    #[prost(message, repeated, tag = "2")]
    b: Vec<Leaf>,
    #[prost(message, repeated, tag = "3")]
    c: Vec<Leaf>,
    #[prost(message, repeated, tag = "4")]
    d: Vec<Leaf>,
    #[prost(message, repeated, tag = "5")]
    e: Vec<Leaf>,
    #[prost(message, repeated, tag = "6")]
    f: Vec<Leaf>,
    #[prost(message, repeated, tag = "7")]
    g: Vec<Leaf>,
    #[prost(message, repeated, tag = "8")]
    h: Vec<Leaf>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "prost")]
struct Tree {
    #[prost(message, repeated, tag = "1")]
    branches: Vec<Branch>,
}

/// Bytes that the decoded message holds, for each of its own.
fn held<T: Decode>(unit: &[u8]) -> usize {
    let message = unit.repeat(MESSAGE_BYTES / unit.len());
    let region = Region::new(ALLOCATOR);
    let decoded = T::decode(Payload::Borrowed(&message)).unwrap();
    let change = region.change();
    drop(decoded);
    (change.bytes_allocated - change.bytes_deallocated) / MESSAGE_BYTES
}

fn main() {
    assert_eq!(size_of::<Leaf>(), 256);
    let leaves: Vec<u8> = (1..=8).flat_map(|field| [field << 3 | 2, 0]).collect();
    let full = [&[1 << 3 | 2, 16][..], &leaves].concat();
    for (name, unit, expected) in [
        ("one list of leaves", &leaves[..2], 128..=256),
        ("a list of one leaf in each field of each branch", &full[..], 400..=512),
    ] {
        let held = if unit.len() == 2 { held::<Branch>(unit) } else { held::<Tree>(unit) };
        assert!(expected.contains(&held), "{name}: {held}");
        assert!(held * MESSAGE_BYTES <= 32 * 1024 * 1024);
    }
}
