//! Leaves of the tree over the log: the bytes of an entry that its hash covers.
//!
//! An entry with the number n is the leaf n - 1 (RFC 6962 counts from 0). The columns follow each other, those that are
//! NULL left out. A number is written as protobuf's sint64: zigzag, then 7 bits a byte, the lowest first. So the leaf of
//! a purchase fits one block of SHA-256, and that of one with a key two.
//!
//! ```text
//! 1 byte   the form, 1
//! 1 byte   bits of the columns that are not NULL: 1 quantity, 2 before, 4 after, 8 key, 16 actor, 32 until
//! number   number
//! number   time, in milliseconds since 1970
//! number   kind, by its code in the table
//! number   id of the book
//! number   owner of the key
//! number   quantity: copies
//! number   before: copies or cents
//! number   after: copies or cents
//! number   until: end of a reservation's time, as the time
//! 32 bytes SHA-256 of the idempotency key, so that a leaf may be shown without it
//! rest     the actor's name
//! ```
//!
//! A number without an entry is the leaf [`MISSING`].

use tlog::{Hash, leaf_hash, sha256};

use super::interface::code;
use crate::domain::{Actor, Entry, IdempotencyKey};

/// Bytes of the leaf of a number without an entry.
pub(super) const MISSING: &[u8] = &[0];

/// The form of [`Leaf::encode`].
const FORM: u8 = 1;

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
    pub(super) until_ms: Option<i64>,
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
            until_ms: entry.until_ms,
        }
    }

    /// Writes the bytes into `into`, whose contents are lost.
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        into.clear();
        let given = [
            self.quantity.is_some(),
            self.before.is_some(),
            self.after.is_some(),
            self.key.is_some(),
            self.actor.is_some(),
            self.until_ms.is_some(),
        ];
        let bits = given.iter().rev().fold(0, |bits, given| bits << 1 | u8::from(*given));
        into.extend([FORM, bits]);
        for number in [self.number, self.time_ms, self.kind, self.book, self.key_owner] {
            put_number(into, number);
        }
        for number in [self.quantity, self.before, self.after, self.until_ms].into_iter().flatten() {
            put_number(into, number);
        }
        if let Some(key) = self.key {
            into.extend(sha256(&[key]).0);
        }
        into.extend_from_slice(self.actor.unwrap_or_default());
    }

    /// The leaf's hash; `space` is reused.
    pub(super) fn hash(&self, space: &mut Vec<u8>) -> Hash {
        self.encode(space);
        leaf_hash(space)
    }
}

/// Appends a number as protobuf's sint64.
fn put_number(into: &mut Vec<u8>, number: i64) {
    let mut rest = (number << 1 ^ number >> 63).cast_unsigned();
    while rest > 0x7f {
        into.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    into.push(rest.to_le_bytes()[0]);
}

/// An entry's columns as its leaf has them, with the key's hash in the place of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) number: i64,
    pub(crate) time_ms: i64,
    pub(crate) kind: i64,
    pub(crate) book: i64,
    pub(crate) quantity: Option<i64>,
    pub(crate) before: Option<i64>,
    pub(crate) after: Option<i64>,
    pub(crate) key: Option<[u8; Hash::BYTES]>,
    pub(crate) key_owner: i64,
    pub(crate) actor: Option<Vec<u8>>,
    pub(crate) until_ms: Option<i64>,
}

impl Decoded {
    /// Reads a leaf; `None` for one of another form, or of a number without an entry.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (&[FORM, bits @ ..0x40], mut rest) = bytes.split_first_chunk::<2>()? else { return None };
        let given = |bit: u8| bits & 1 << bit != 0;
        let mut number = || take_number(&mut rest);
        let [number, time_ms, kind, book, key_owner] = [number()?, number()?, number()?, number()?, number()?];
        let mut column = |bit: u8| if given(bit) { take_number(&mut rest).map(Some) } else { Some(None) };
        let [quantity, before, after, until_ms] = [column(0)?, column(1)?, column(2)?, column(5)?];
        let mut key = None;
        if given(3) {
            let (hash, behind) = rest.split_first_chunk()?;
            (key, rest) = (Some(*hash), behind);
        }
        let actor = given(4).then(|| rest.to_vec());
        let is_whole = actor.is_some() || rest.is_empty();
        is_whole.then_some(Self {
            number,
            time_ms,
            kind,
            book,
            quantity,
            before,
            after,
            key,
            key_owner,
            actor,
            until_ms,
        })
    }
}

/// Takes a number from the front.
fn take_number(bytes: &mut &[u8]) -> Option<i64> {
    let (mut zigzag, mut shift) = (0_u64, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        zigzag |= part.checked_shl(shift).filter(|moved| moved >> shift == part)?;
        if byte & 0x80 == 0 {
            return Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
        }
        shift += 7;
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

    use super::{Decoded, Leaf, MISSING};

    fn columns(leaf: &Leaf<'_>) -> Decoded {
        let &Leaf { number, time_ms, kind, book, quantity, before, after, key_owner, until_ms, .. } = leaf;
        let key = leaf.key.map(|key| sha256(&[key]).0);
        let actor = leaf.actor.map(<[u8]>::to_vec);
        Decoded { number, time_ms, kind, book, quantity, before, after, key, key_owner, actor, until_ms }
    }

    #[test]
    fn bytes_that_are_no_leaf_are_refused() {
        let entry = b"\x01\x07\xd8\x04\x80\xa0\xab\xfe\xf9b\x04\xca\xc3\x06\x00\x02\xd0\x0f\xce\x0f";
        assert_eq!(Decoded::of(entry).map(|leaf| leaf.number), Some(300));
        for length in 0..entry.len() {
            assert_eq!(Decoded::of(&entry[..length]), None);
        }
        let longer = [&entry[..], b"!"].concat();
        let endless = [&entry[..2], &[0xff; 40]].concat();
        for bytes in [MISSING, &longer, &endless, b"\x02\x00\x00\x00\x00\x00\x00", b"\x01\x40\x00\x00\x00\x00\x00"] {
            assert_eq!(Decoded::of(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_leaf_has_the_bytes_of_the_documentation() {
        let (key, actor) = (Some(&b"key"[..]), Some(&b"console"[..]));
        let mut leaf = Leaf {
            number: 300,
            time_ms: 1_700_000_000_000,
            kind: 2,
            book: 53477,
            quantity: Some(1),
            before: Some(1000),
            after: Some(999),
            key: None,
            key_owner: 0,
            actor: None,
            until_ms: None,
        };
        let mut bytes = Vec::new();
        leaf.encode(&mut bytes);
        let plain = *b"\x01\x07\xd8\x04\x80\xa0\xab\xfe\xf9b\x04\xca\xc3\x06\x00\x02\xd0\x0f\xce\x0f";
        assert_eq!(bytes, plain);
        (leaf.key, leaf.key_owner, leaf.actor) = (key, -1, actor);
        leaf.encode(&mut bytes);
        let hash = sha256(&[b"key"]).0;
        let whole = [&b"\x01\x1f"[..], &plain[2..14], b"\x01", &plain[15..], &hash, b"console"].concat();
        assert_eq!(bytes, whole);
        leaf.until_ms = Some(-2);
        leaf.encode(&mut bytes);
        assert_eq!(bytes, [&b"\x01\x3f"[..], &whole[2..20], b"\x03", &whole[20..]].concat());
    }

    proptest! {
        #[test]
        fn a_leaf_is_read_back_as_the_columns_it_was_made_of(
            fixed: [i64; 4],
            given: [Option<i64>; 4],
            key: Option<Vec<u8>>,
            key_owner: i64,
            actor: Option<Vec<u8>>,
        ) {
            let [number, time_ms, kind, book] = fixed;
            let [quantity, before, after, until_ms] = given;
            let (key, actor) = (key.as_deref(), actor.as_deref());
            let leaf = Leaf { number, time_ms, kind, book, quantity, before, after, key, key_owner, actor, until_ms };
            let mut bytes = vec![7; 3];
            leaf.encode(&mut bytes);
            prop_assert_eq!(Decoded::of(&bytes), Some(columns(&leaf)));
            prop_assert_ne!(bytes.as_slice(), MISSING);
        }
    }
}
