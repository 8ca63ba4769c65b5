//! Hashes of leaves and nodes.

use std::fmt;

use ring::digest::{Context, SHA256};

/// A SHA-256 hash: of a leaf, a node or a whole tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; Self::BYTES]);

impl Hash {
    /// Bytes in a hash.
    pub const BYTES: usize = 32;
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// The hash of a leaf: SHA-256 of a zero byte and `entry`.
pub fn leaf_hash(entry: &[u8]) -> Hash {
    sha256(&[&[0], entry])
}

/// The hash of an inner node: SHA-256 of a byte of 1 and both children.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    sha256(&[&[1], &left.0, &right.0])
}

/// SHA-256 of `parts`, one after the other.
pub fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let mut hash = Hash([0; Hash::BYTES]);
    hash.0.copy_from_slice(context.finish().as_ref());
    hash
}
