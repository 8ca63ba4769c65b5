//! The paths of methods, and their numbers for tables.
//!
//! Must not know calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The path of a method; generated code has one static for each.
#[derive(Debug)]
pub struct Path {
    pub(super) text: &'static str,
    number: OnceLock<usize>,
}

impl Path {
    /// `/package.Service/Method`.
    pub const fn new(text: &'static str) -> Self {
        Self { text, number: OnceLock::new() }
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

    /// A small number that no other path has, for tables.
    pub(super) fn number(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        *self.number.get_or_init(|| NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
