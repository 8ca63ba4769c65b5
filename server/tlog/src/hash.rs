//! Hashes of leaves and nodes.

use std::fmt;

use ring::digest::{Context, Digest, SHA256, digest};

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
    // In one piece, because a context costs as much as a block.
    let mut short = [0; 128];
    let Some(place) = short.get_mut(1..=entry.len()) else { return sha256(&[&[0], entry]) };
    place.copy_from_slice(entry);
    digest_of(&short[..=entry.len()])
}

/// The hash of an inner node: SHA-256 of a byte of 1 and both children.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut bytes = [1; 1 + 2 * Hash::BYTES];
    bytes[1..=Hash::BYTES].copy_from_slice(&left.0);
    bytes[1 + Hash::BYTES..].copy_from_slice(&right.0);
    digest_of(&bytes)
}

/// SHA-256 of `parts`, one after the other.
pub fn sha256(parts: &[&[u8]]) -> Hash {
    if let [bytes] = parts {
        return digest_of(bytes);
    }
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    hash_of(&context.finish())
}

fn digest_of(bytes: &[u8]) -> Hash {
    hash_of(&digest(&SHA256, bytes))
}

fn hash_of(digest: &Digest) -> Hash {
    let mut hash = Hash([0; Hash::BYTES]);
    hash.0.copy_from_slice(digest.as_ref());
    hash
}
