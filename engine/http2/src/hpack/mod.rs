//! Header compression (RFC 7541): representations, tables and strings.

mod decoder;
mod encoder;
mod primitives;
mod static_table;
mod table;

pub(crate) use decoder::Decoder;
pub use encoder::{CachedBlock, Indexing};
pub(crate) use encoder::{Encoder, SHORT_BYTES, ShortBlock};
pub(crate) use static_table::STATIC;

/// Overhead of an entry beyond its bytes (RFC 7541 section 4.1).
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 32;

#[cfg(test)]
mod vectors;
