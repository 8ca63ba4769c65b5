//! The right edge of a tree.

use crate::hash::{Hash, node_hash, sha256};

/// The roots of the full subtrees that make up a tree, largest first: enough to append leaves and to compute the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// One hash for each bit of `size` that is set.
    hashes: Vec<Hash>,
}

/// Reason why bytes are not those of a [`Frontier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontierError {
    /// The bytes end within the size.
    #[error("the right edge of the tree has {0} bytes; its size alone takes 8")]
    NoSize(usize),
    /// The size wants another number of hashes.
    #[error("the right edge of a tree of {size} leaves has {found} bytes; it takes {expected}")]
    Length {
        /// Leaves in the tree.
        size: u64,
        /// Bytes given.
        found: usize,
        /// Bytes that a tree of `size` leaves takes.
        expected: usize,
    },
    /// No log grows so long.
    #[error("a tree of {0} leaves has no room for more")]
    Size(u64),
}

impl Frontier {
    /// Bytes of the longest serialisation.
    pub const BYTES_MAX: usize = 8 + 63 * Hash::BYTES;

    /// Leaves that a tree which is read may have, so that appending cannot overflow.
    pub const SIZE_MAX: u64 = u64::MAX >> 1;

    /// Leaves in the tree.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The roots of the full subtrees, largest first.
    pub fn hashes(&self) -> &[Hash] {
        &self.hashes
    }

    /// Adds a leaf with the hash `leaf`.
    pub fn append(&mut self, leaf: Hash) {
        self.append_full(leaf, 0);
    }

    /// Adds `count` leaves with the same hash, at a cost of the logarithm of `count`.
    pub fn append_run(&mut self, leaf: Hash, count: u64) {
        let mut full = vec![leaf];
        for height in 0..count.max(1).ilog2() as usize {
            full.push(node_hash(&full[height], &full[height]));
        }
        let mut left = count;
        while left > 0 {
            let height = left.ilog2().min(self.size.trailing_zeros());
            self.append_full(full[height as usize], height);
            left -= 1 << height;
        }
    }

    /// Adds a full subtree; the size is a multiple of its leaves.
    fn append_full(&mut self, root: Hash, height: u32) {
        let mut hash = root;
        for _ in 0..(self.size >> height).trailing_ones() {
            let left = self.hashes.pop().expect("a hash for each bit of the size");
            hash = node_hash(&left, &hash);
        }
        self.hashes.push(hash);
        self.size += 1 << height;
    }

    /// Adds the leaves with the hashes `leaves`, in order.
    pub fn append_all(&mut self, leaves: impl IntoIterator<Item = Hash>) {
        leaves.into_iter().for_each(|leaf| self.append(leaf));
    }

    /// The root of the tree; for a tree without leaves, SHA-256 of nothing.
    pub fn root(&self) -> Hash {
        let right_to_left = self.hashes.iter().rev().copied();
        right_to_left.reduce(|right, left| node_hash(&left, &right)).unwrap_or_else(|| sha256(&[]))
    }

    /// The size in 8 bytes, big-endian, and the hashes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.size.to_be_bytes().to_vec();
        bytes.extend(self.hashes.iter().flat_map(|hash| hash.0));
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FrontierError> {
        let (size, rest) = bytes.split_first_chunk().ok_or(FrontierError::NoSize(bytes.len()))?;
        let size = u64::from_be_bytes(*size);
        if size > Self::SIZE_MAX {
            return Err(FrontierError::Size(size));
        }
        let expected = 8 + size.count_ones() as usize * Hash::BYTES;
        if bytes.len() != expected {
            return Err(FrontierError::Length { size, found: bytes.len(), expected });
        }
        let (hashes, _) = rest.as_chunks();
        Ok(Self { size, hashes: hashes.iter().copied().map(Hash).collect() })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::hash::leaf_hash;

    /// The leaves and the roots of the trees of 0 to 8 of them, from certificate-transparency's `merkle_tree_test.cc`.
    pub(crate) const LEAVES: [&[u8]; 8] = [
        b"",
        b"\x00",
        b"\x10",
        b"\x20\x21",
        b"\x30\x31",
        b"\x40\x41\x42\x43",
        b"\x50\x51\x52\x53\x54\x55\x56\x57",
        b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
    ];
    const ROOTS: [&str; 9] = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];

    #[test]
    fn roots_are_those_of_certificate_transparency() {
        let mut tree = Frontier::default();
        assert_eq!(tree.root().to_string(), ROOTS[0]);
        for (leaf, root) in LEAVES.iter().zip(&ROOTS[1..]) {
            tree.append(leaf_hash(leaf));
            assert_eq!(tree.root().to_string(), *root);
        }
    }

    #[test]
    fn root_is_that_of_the_recursive_definition() {
        fn root(leaves: &[Hash]) -> Hash {
            if let [leaf] = leaves {
                return *leaf;
            }
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            node_hash(&root(left), &root(right))
        }
        let leaves: Vec<Hash> = (0..300_u32).map(|number| leaf_hash(&number.to_be_bytes())).collect();
        let mut tree = Frontier::default();
        for size in 1..=leaves.len() {
            tree.append(leaves[size - 1]);
            assert_eq!(tree.root(), root(&leaves[..size]), "{size} leaves");
        }
    }

    #[test]
    fn a_tree_that_was_written_and_read_goes_on_as_before() {
        let leaf = |number: u64| leaf_hash(&number.to_be_bytes());
        let mut tree = Frontier::default();
        for number in 0..200 {
            let mut read = Frontier::from_bytes(&tree.to_bytes()).unwrap();
            assert_eq!(read, tree);
            tree.append(leaf(number));
            read.append_all([leaf(number)]);
            assert_eq!((read.root(), read.size()), (tree.root(), number + 1));
        }
    }

    #[test]
    fn bytes_of_another_length_are_refused() {
        let mut tree = Frontier::default();
        tree.append_all([leaf_hash(b"a"), leaf_hash(b"b"), leaf_hash(b"c")]);
        let bytes = tree.to_bytes();
        assert_eq!(Frontier::from_bytes(&bytes[..7]), Err(FrontierError::NoSize(7)));
        for found in 8..bytes.len() {
            assert_eq!(
                Frontier::from_bytes(&bytes[..found]),
                Err(FrontierError::Length { size: 3, found, expected: 72 })
            );
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Frontier::from_bytes(&longer), Err(FrontierError::Length { size: 3, found: 73, expected: 72 }));
    }

    #[test]
    fn a_tree_that_is_read_has_room_for_more_leaves() {
        let mut bytes = [0xff; Frontier::BYTES_MAX];
        let longer = [&bytes[..], &[0xff; Hash::BYTES]].concat();
        assert_eq!(Frontier::from_bytes(&longer), Err(FrontierError::Size(u64::MAX)));
        bytes[0] = 0x7f;
        let mut tree = Frontier::from_bytes(&bytes).unwrap();
        tree.append_run(leaf_hash(b"a"), Frontier::SIZE_MAX);
        assert_eq!(tree.size(), u64::MAX - 1);
    }

    #[test]
    fn a_run_of_equal_leaves_is_what_appending_them_one_by_one_makes() {
        let (leaf, other) = (leaf_hash(b"equal"), leaf_hash(b"other"));
        for before in 0..40_u64 {
            for count in 0..70 {
                let mut tree = Frontier::default();
                tree.append_all((0..before).map(|_| other));
                let mut run = tree.clone();
                tree.append_all((0..count).map(|_| leaf));
                run.append_run(leaf, count);
                assert_eq!(run, tree, "{count} after {before}");
            }
        }
    }
}
