//! Leaves of the tree over the log: the bytes of an entry that its hash covers.
//!
//! An entry with the number n is the leaf n - 1 (RFC 6962 counts from 0). All numbers are big-endian:
//!
//! ```text
//!  0  1   the form, 1
//!  1  1   bits of the columns that are not NULL: 1 quantity, 2 before, 4 after, 8 key, 16 actor
//!  2  8   number
//! 10  8   time, in milliseconds since 1970
//! 18  8   kind, by its code in the table
//! 26  8   id of the book
//! 34  8   quantity: copies, or 0 for NULL
//! 42  8   before: copies or cents, or 0 for NULL
//! 50  8   after: copies or cents, or 0 for NULL
//! 58 32   SHA-256 of the idempotency key, so that a leaf may be shown without it; zeros for NULL
//! 90  8   owner of the key
//! 98      the actor's name, to the end
//! ```
//!
//! A number without an entry is the leaf [`MISSING`].

use tlog::{Hash, leaf_hash, sha256};

use super::interface::code;
use crate::domain::{Actor, Entry, IdempotencyKey};

/// Bytes of the leaf of a number without an entry.
const MISSING: &[u8] = &[0];

/// The form of [`Leaf::encode`].
const FORM: u8 = 1;

/// Bytes before the actor's name.
const HEAD: usize = 98;

/// An entry's columns as the table has them, so that an entry of another program has a leaf as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf<'a> {
    pub(super) number: i64,
    pub(super) time_ms: i64,
    pub(super) kind: i64,
    pub(super) book: i64,
    pub(super) quantity: Option<i64>,
    pub(super) before: Option<i64>,
    pub(super) after: Option<i64>,
    pub(super) key: Option<&'a [u8]>,
    pub(super) key_owner: i64,
    pub(super) actor: Option<&'a [u8]>,
}

impl<'a> Leaf<'a> {
    /// The columns that the ledger writes for this entry.
    pub(super) fn of(entry: &'a Entry) -> Self {
        Self {
            number: entry.number,
            time_ms: entry.time_ms,
            kind: code(entry.kind),
            book: entry.book.get().into(),
            quantity: entry.quantity.map(i64::from),
            before: entry.before,
            after: entry.after,
            key: entry.key.as_ref().map(IdempotencyKey::as_bytes),
            key_owner: entry.key.as_ref().map(IdempotencyKey::owner).unwrap_or_default().stored(),
            actor: entry.actor.as_ref().map(|actor| Actor::as_str(actor).as_bytes()),
        }
    }

    /// Writes the bytes into `into`, whose contents are lost.
    fn encode(&self, into: &mut Vec<u8>) {
        into.clear();
        let given = [
            self.quantity.is_some(),
            self.before.is_some(),
            self.after.is_some(),
            self.key.is_some(),
            self.actor.is_some(),
        ];
        let bits = given.iter().rev().fold(0, |bits, given| bits << 1 | u8::from(*given));
        into.extend([FORM, bits]);
        let (quantity, before, after) = (self.quantity, self.before, self.after);
        let numbers =
            [Some(self.number), Some(self.time_ms), Some(self.kind), Some(self.book), quantity, before, after];
        into.extend(numbers.iter().flat_map(|number| number.unwrap_or_default().to_be_bytes()));
        into.extend(self.key.map_or([0; Hash::BYTES], |key| sha256(&[key]).0));
        into.extend(self.key_owner.to_be_bytes());
        debug_assert_eq!(into.len(), HEAD, "the documented place");
        into.extend_from_slice(self.actor.unwrap_or_default());
    }

    /// The leaf's hash; `space` is reused.
    pub(super) fn hash(&self, space: &mut Vec<u8>) -> Hash {
        self.encode(space);
        leaf_hash(space)
    }
}

/// The hash of the leaf of a number without an entry.
pub(super) fn missing() -> Hash {
    leaf_hash(MISSING)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tlog::sha256;

    use super::{FORM, HEAD, Leaf, MISSING};

    /// A leaf's columns, with the key's hash in the place of the key.
    type Columns = ([i64; 4], [Option<i64>; 3], Option<[u8; 32]>, i64, Option<Vec<u8>>);

    fn columns(leaf: &Leaf<'_>) -> Columns {
        let fixed = [leaf.number, leaf.time_ms, leaf.kind, leaf.book];
        let key = leaf.key.map(|key| sha256(&[key]).0);
        (fixed, [leaf.quantity, leaf.before, leaf.after], key, leaf.key_owner, leaf.actor.map(<[u8]>::to_vec))
    }

    /// Reads a leaf by the table in the module's text.
    fn decode(bytes: &[u8]) -> Columns {
        assert_eq!(bytes[0], FORM);
        let given = |bit: u8| bytes[1] & 1 << bit != 0;
        let number = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        let some = |bit: u8, at: usize| {
            assert!(given(bit) || number(at) == 0, "NULL is 0");
            given(bit).then(|| number(at))
        };
        let key = given(3).then(|| bytes[58..90].try_into().unwrap());
        let fixed = [number(2), number(10), number(18), number(26)];
        (fixed, [some(0, 34), some(1, 42), some(2, 50)], key, number(90), given(4).then(|| bytes[HEAD..].to_vec()))
    }

    proptest! {
        #[test]
        fn a_leaf_is_read_back_as_the_columns_it_was_made_of(
            fixed: [i64; 4],
            given: [Option<i64>; 3],
            key: Option<Vec<u8>>,
            key_owner: i64,
            actor: Option<Vec<u8>>,
        ) {
            let [number, time_ms, kind, book] = fixed;
            let [quantity, before, after] = given;
            let (key, actor) = (key.as_deref(), actor.as_deref());
            let leaf = Leaf { number, time_ms, kind, book, quantity, before, after, key, key_owner, actor };
            let mut bytes = vec![7; 3];
            leaf.encode(&mut bytes);
            prop_assert_eq!(decode(&bytes), columns(&leaf));
            prop_assert_ne!(bytes.as_slice(), MISSING);
        }
    }
}
