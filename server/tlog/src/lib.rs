//! The Merkle tree of a log, with the hashes of [RFC 6962](https://www.rfc-editor.org/rfc/rfc6962#section-2.1) over
//! SHA-256.
//!
//! Must not know what an entry says, nor where one is kept.

mod frontier;
mod hash;

pub use frontier::{Frontier, FrontierError};
pub use hash::{Hash, leaf_hash, node_hash, sha256};
