//! The Merkle tree of a log, with the hashes of [RFC 6962](https://www.rfc-editor.org/rfc/rfc6962#section-2.1) over
//! SHA-256, and its proofs in the formats of <https://c2sp.org>, which programs of others verify.
//!
//! Must not know what an entry says, nor where one is kept.

mod checkpoint;
mod frontier;
mod hash;
mod note;
mod proof;
mod tile;

pub use checkpoint::{Checkpoint, EntryProof, ProofError, submission};
pub use frontier::{Frontier, FrontierError};
pub use hash::{Hash, leaf_hash, node_hash, sha256};
pub use note::{KEY_BYTES, NoteError, Signer, Verifier, is_name, new_seed};
pub use proof::{Node, consistency, inclusion, is_consistent, root, root_of_inclusion};
pub use tile::Tile;
