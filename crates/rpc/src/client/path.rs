//! The paths of methods, and their numbers for tables.
//!
//! Must not know calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::protocol::Codec;
use crate::status::{Reach, Status};
use crate::transcode::{self, Json};

/// The path of a method; generated code has one static for each.
#[derive(Debug)]
pub struct Path {
    pub(super) text: &'static str,
    number: OnceLock<usize>,
    /// An encoded `FileDescriptorSet`; empty if the contract is not known.
    contract: &'static [u8],
    pub(super) has_side_effects: bool,
    json: OnceLock<Option<(Json, Json)>>,
}

impl Path {
    /// `/package.Service/Method`.
    pub const fn new(text: &'static str) -> Self {
        Self { text, number: OnceLock::new(), contract: &[], has_side_effects: true, json: OnceLock::new() }
    }

    /// With the contract, an encoded `FileDescriptorSet`; calls in JSON need it.
    #[must_use]
    pub const fn of_contract(mut self, contract: &'static [u8]) -> Self {
        self.contract = contract;
        self
    }

    /// The method changes nothing: Connect may call it by GET.
    #[must_use]
    pub const fn without_side_effects(mut self) -> Self {
        self.has_side_effects = false;
        self
    }

    /// How the method's requests are written as JSON, and its answers read; `None` in protobuf.
    pub(super) fn json(&self, codec: Codec) -> Result<Option<&(Json, Json)>, Status> {
        if codec == Codec::Proto {
            return Ok(None);
        }
        let known = self.json.get_or_init(|| transcode::json_of(self.contract, self.text)).as_ref();
        let unknown = || format!("the contract of {} is not known here, so it has no JSON: send protobuf", self.text);
        known.map(Some).ok_or_else(|| Status::unimplemented(unknown()).with_reach(Reach::Untouched))
    }

    /// The path of a method whose name is known only at run time. Each distinct text is kept until the process ends, so
    /// it must come from a method's description or an operator, never from a peer that can make up more.
    pub fn named(text: &str) -> &'static Self {
        static NAMED: OnceLock<Mutex<HashMap<&'static str, &'static Path>>> = OnceLock::new();
        let mut named = NAMED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = named.get(text) {
            return path;
        }
        let path: &'static Self = Box::leak(Box::new(Self::new(String::from(text).leak())));
        named.insert(path.text, path);
        path
    }

    /// A small number that no other path or repeated request has, for tables.
    pub(super) fn number(&self) -> usize {
        *self.number.get_or_init(next_number)
    }
}

/// A number for tables that was not given out before.
pub(super) fn next_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
