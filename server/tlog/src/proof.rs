//! Proofs that a tree has a leaf, or is an earlier tree with more leaves.

use crate::hash::{Hash, node_hash};

/// A full subtree: the leaves from `index << height` on, `1 << height` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// 0 for a leaf.
    pub height: u32,
    /// Place among the nodes of this height.
    pub index: u64,
}

/// The hashes beside the way from the leaf `index` up to the root of the tree of `size` leaves: the leaf's neighbour first,
/// as in RFC 6962, section 2.1.1. `read` returns the hash of a node, and is called for nodes within `size` alone.
///
/// # Panics
///
/// If the tree does not have the leaf.
pub fn inclusion<E>(index: u64, size: u64, mut read: impl FnMut(Node) -> Result<Hash, E>) -> Result<Vec<Hash>, E> {
    assert!(index < size, "leaf {index} of {size}");
    let (mut from, mut to, mut beside) = (0, size, Vec::new());
    while to - from > 1 {
        let middle = from + split(to - from);
        if index < middle {
            beside.push((middle, to));
            to = middle;
        } else {
            beside.push((from, middle));
            from = middle;
        }
    }
    beside.into_iter().rev().map(|(from, to)| range(from, to, &mut read)).collect()
}

/// The hashes from which the roots of the trees of `old` and of `new` leaves follow, as in RFC 6962, section 2.1.2; empty
/// if `old` is 0 or equals `new`.
///
/// # Panics
///
/// If the older tree is the larger one.
pub fn consistency<E>(old: u64, new: u64, mut read: impl FnMut(Node) -> Result<Hash, E>) -> Result<Vec<Hash>, E> {
    assert!(old <= new, "a tree of {new} leaves does not begin with {old}");
    if old == 0 || old == new {
        return Ok(Vec::new());
    }
    let (mut from, mut to, mut ranges) = (0, new, Vec::new());
    while to > old {
        let middle = from + split(to - from);
        if old <= middle {
            ranges.push((middle, to));
            to = middle;
        } else {
            ranges.push((from, middle));
            from = middle;
        }
    }
    if from > 0 {
        ranges.push((from, to));
    }
    ranges.into_iter().rev().map(|(from, to)| range(from, to, &mut read)).collect()
}

/// The root of the tree of `size` leaves, more than none.
pub fn root<E>(size: u64, mut read: impl FnMut(Node) -> Result<Hash, E>) -> Result<Hash, E> {
    range(0, size, &mut read)
}

/// The root that the leaf's hash and an [`inclusion`] proof lead to; `None` if the proof is not one of a tree with this
/// size.
pub fn root_of_inclusion(index: u64, size: u64, leaf: Hash, proof: &[Hash]) -> Option<Hash> {
    // RFC 9162, section 2.1.3.2.
    let (mut place, mut last, mut hash) = (index, size.checked_sub(1)?, leaf);
    if place > last {
        return None;
    }
    for beside in proof {
        if last == 0 {
            return None;
        }
        if place & 1 == 1 || place == last {
            hash = node_hash(beside, &hash);
            while place & 1 == 0 && place != 0 {
                (place, last) = (place >> 1, last >> 1);
            }
        } else {
            hash = node_hash(&hash, beside);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    (last == 0).then_some(hash)
}

/// True if a [`consistency`] proof shows that the tree with the root `new_root` begins with the leaves of the tree with the
/// root `old_root`.
pub fn is_consistent(old: u64, old_root: Hash, new: u64, new_root: Hash, proof: &[Hash]) -> bool {
    if old == new {
        return proof.is_empty() && old_root == new_root;
    }
    if old > new || old == 0 {
        return old == 0 && proof.is_empty();
    }
    // RFC 9162, section 2.1.4.2.
    let (first, rest) = match proof.split_first() {
        _ if old.is_power_of_two() => (old_root, proof),
        Some((first, rest)) => (*first, rest),
        None => return false,
    };
    let (mut place, mut last) = (old - 1, new - 1);
    let full = place.trailing_ones();
    (place, last) = (place >> full, last >> full);
    let (mut of_old, mut of_new) = (first, first);
    for beside in rest {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            of_old = node_hash(beside, &of_old);
            of_new = node_hash(beside, &of_new);
            while place & 1 == 0 && place != 0 {
                (place, last) = (place >> 1, last >> 1);
            }
        } else {
            of_new = node_hash(&of_new, beside);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    last == 0 && of_old == old_root && of_new == new_root
}

/// The largest power of two below `size`, which is at least 2.
fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// The root over the leaves from `from` to before `to`: one of the trees that the recursion of RFC 6962 comes by.
fn range<E>(from: u64, to: u64, read: &mut impl FnMut(Node) -> Result<Hash, E>) -> Result<Hash, E> {
    let (mut nodes, mut at) = (Vec::new(), from);
    while at < to {
        let height = (to - at).ilog2();
        nodes.push(Node { height, index: at >> height });
        at += 1 << height;
    }
    let (last, before) = nodes.split_last().expect("a tree with leaves");
    let mut hash = read(*last)?;
    for node in before.iter().rev() {
        hash = node_hash(&read(*node)?, &hash);
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::{Frontier, frontier::tests::LEAVES, leaf_hash};

    /// Index, size and proof, from certificate-transparency's `merkle_tree_test.cc`.
    const INCLUSIONS: [(u64, u64, &[&str]); 5] = [
        (0, 1, &[]),
        (
            0,
            8,
            &[
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ],
        ),
        (
            5,
            8,
            &[
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ],
        ),
        (2, 3, &["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
        (
            1,
            5,
            &[
                "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            ],
        ),
    ];

    /// Both sizes and the proof, from the same file.
    const CONSISTENCIES: [(u64, u64, &[&str]); 4] = [
        (1, 1, &[]),
        (
            1,
            8,
            &[
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ],
        ),
        (
            6,
            8,
            &[
                "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ],
        ),
        (
            2,
            5,
            &[
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            ],
        ),
    ];

    /// Reads nodes of a tree of these leaves, none beyond them.
    fn tree(leaves: &[Hash]) -> impl Fn(Node) -> Result<Hash, Infallible> + use<'_> {
        |node| {
            let first = usize::try_from(node.index << node.height).unwrap();
            let mut tree = Frontier::default();
            tree.append_all(leaves[first..][..1 << node.height].iter().copied());
            Ok(tree.root())
        }
    }

    fn root_at(leaves: &[Hash], size: u64) -> Hash {
        root(size, tree(&leaves[..usize::try_from(size).unwrap()])).unwrap()
    }

    fn texts(proof: &[Hash]) -> Vec<String> {
        proof.iter().map(Hash::to_string).collect()
    }

    #[test]
    fn proofs_are_those_of_certificate_transparency() {
        let leaves = LEAVES.map(leaf_hash);
        for (index, size, wanted) in INCLUSIONS {
            let proof = inclusion(index, size, tree(&leaves)).unwrap();
            assert_eq!(texts(&proof), wanted, "leaf {index} of {size}");
        }
        for (old, new, wanted) in CONSISTENCIES {
            let proof = consistency(old, new, tree(&leaves)).unwrap();
            assert_eq!(texts(&proof), wanted, "from {old} to {new}");
        }
    }

    fn leaves(count: u32) -> Vec<Hash> {
        (0..count).map(|number| leaf_hash(&number.to_be_bytes())).collect()
    }

    #[test]
    fn a_proof_of_inclusion_leads_to_the_root_and_no_other_does() {
        let leaves = leaves(40);
        for size in 1..=40 {
            let root = root_at(&leaves, size);
            for index in 0..size {
                let mut proof = inclusion(index, size, tree(&leaves)).unwrap();
                let leaf = leaves[usize::try_from(index).unwrap()];
                assert_eq!(root_of_inclusion(index, size, leaf, &proof), Some(root), "leaf {index} of {size}");
                let other = leaf_hash(b"other");
                assert_ne!(root_of_inclusion(index, size, other, &proof), Some(root));
                assert_ne!(root_of_inclusion(index + 1, size, leaf, &proof), Some(root));
                for place in 0..proof.len() {
                    let right = std::mem::replace(&mut proof[place], other);
                    assert_ne!(root_of_inclusion(index, size, leaf, &proof), Some(root));
                    proof[place] = right;
                }
                proof.push(other);
                assert_eq!(root_of_inclusion(index, size, leaf, &proof), None);
                proof.pop();
                if proof.pop().is_some() {
                    assert_eq!(root_of_inclusion(index, size, leaf, &proof), None);
                }
            }
            assert_eq!(root_of_inclusion(size, size, root, &[]), None);
        }
        assert_eq!(root_of_inclusion(0, 0, leaves[0], &[]), None);
    }

    #[test]
    fn a_proof_of_consistency_holds_for_its_trees_and_no_others() {
        let (leaves, other) = (leaves(40), leaf_hash(b"other"));
        for new in 1..=40 {
            let new_root = root_at(&leaves, new);
            for old in 1..=new {
                let mut proof = consistency(old, new, tree(&leaves)).unwrap();
                let old_root = root_at(&leaves, old);
                assert!(is_consistent(old, old_root, new, new_root, &proof), "from {old} to {new}");
                assert!(!is_consistent(old, other, new, new_root, &proof), "from {old} to {new}");
                assert!(!is_consistent(old, old_root, new, other, &proof), "from {old} to {new}");
                for place in 0..proof.len() {
                    let right = std::mem::replace(&mut proof[place], other);
                    assert!(!is_consistent(old, old_root, new, new_root, &proof), "from {old} to {new}");
                    proof[place] = right;
                }
                proof.push(other);
                assert!(!is_consistent(old, old_root, new, new_root, &proof), "from {old} to {new}");
                proof.pop();
                if proof.pop().is_some() {
                    assert!(!is_consistent(old, old_root, new, new_root, &proof), "from {old} to {new}");
                }
            }
            assert!(!is_consistent(new + 1, new_root, new, new_root, &[]));
        }
    }

    #[test]
    fn a_proof_for_a_long_log_asks_for_few_nodes() {
        let mut asked = 0;
        let mut read = |_: Node| {
            asked += 1;
            Ok::<_, Infallible>(leaf_hash(b""))
        };
        assert_eq!(inclusion(7, (1 << 62) - 1, &mut read).unwrap().len(), 62);
        assert!(asked <= 2 * 62, "{asked}");
    }
}
