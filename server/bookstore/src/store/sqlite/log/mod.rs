//! The log of purchases as a Merkle tree, the head that shows its length and root, and what compares them: at a start,
//! beside a server, and for `quire verify`.

pub(super) mod audit;
pub(super) mod check;
pub(super) mod head;
pub(super) mod loss;
pub(super) mod numbers;
pub(super) mod tree;
pub(super) mod verify;
