//! Books, purchases and log entries, with units in the types.

use std::{fmt, hash::Hasher as _, time::Instant};

use siphasher::sip::SipHasher13;

use crate::{fault::Fault, money::Cents};

/// A book's number in the catalogue, from 1 to `i32::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookId(i32);

impl BookId {
    /// The valid range, for errors.
    pub const WANTED: &str = "a whole number from 1 to 2147483647";

    /// `None` for 0 and below.
    pub const fn new(id: i32) -> Option<Self> {
        if id > 0 { Some(Self(id)) } else { None }
    }

    /// An id from the wire, where absent is 0.
    pub fn from_wire(id: i32) -> Result<Self, Fault> {
        Self::new(id).ok_or_else(|| Fault::invalid("id", id, Self::WANTED))
    }

    /// The number.
    pub const fn get(self) -> i32 {
        self.0
    }

    /// Parses decimal text.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let id = text.parse().ok().and_then(Self::new);
        id.ok_or_else(|| Fault::invalid_word("id", text, Self::WANTED))
    }
}

impl fmt::Display for BookId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Most copies of a book: the largest `int32` of the wire.
pub const STOCK_MAX: u32 = i32::MAX.unsigned_abs();

/// Default amount of `restock`.
pub const RESTOCK_DEFAULT: u32 = 20;

/// A new book, or a book from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBook {
    /// Its unused number.
    pub id: BookId,
    /// Not empty.
    pub title: String,
    /// Not empty; searched by exact text.
    pub topic: String,
    /// Copies, at most [`STOCK_MAX`].
    pub stock: u32,
    /// Price of one copy.
    pub price: Cents,
}

/// The callers that a key belongs to: those whose credential has one name, or all without one. Kept as a sum of the
/// name; credentials are few, so that 64 bits distinguish them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyOwner(i64);

impl KeyOwner {
    /// Callers that a server asks for no credential. Keys from before keys had owners are theirs.
    pub const COMMON: Self = Self(0);

    /// The holders of credentials with this name.
    pub fn named(name: &str) -> Self {
        let mut hasher = SipHasher13::new();
        hasher.write(name.as_bytes());
        Self(hasher.finish().max(1).cast_signed())
    }

    pub(crate) const fn from_stored(sum: i64) -> Self {
        Self(sum)
    }

    pub(crate) const fn stored(self) -> i64 {
        self.0
    }
}

/// Names a purchase so that it happens once however often it is sent; 1 to [`IdempotencyKey::BYTES_MAX`] bytes, and the
/// owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    owner: KeyOwner,
    // Inline, to save an allocation per purchase. Zero past `len`.
    bytes: [u8; Self::BYTES_MAX],
    len: u8,
}

impl IdempotencyKey {
    /// More than a UUID as text.
    pub const BYTES_MAX: usize = 64;

    /// A key of callers without a credential. Empty means that the caller wants no key.
    pub fn from_wire(key: &[u8]) -> Result<Option<Self>, Fault> {
        let Ok(len) = u8::try_from(key.len()) else { return Err(Self::too_long(key.len())) };
        if key.is_empty() {
            return Ok(None);
        }
        let mut bytes = [0; Self::BYTES_MAX];
        bytes.get_mut(..key.len()).ok_or_else(|| Self::too_long(key.len()))?.copy_from_slice(key);
        Ok(Some(Self { owner: KeyOwner::COMMON, bytes, len }))
    }

    /// The same bytes as a key of this owner.
    #[must_use]
    pub const fn of(self, owner: KeyOwner) -> Self {
        Self { owner, ..self }
    }

    /// The callers that it belongs to.
    pub const fn owner(&self) -> KeyOwner {
        self.owner
    }

    fn too_long(len: usize) -> Fault {
        Fault::invalid("idempotency_key", format!("{len} bytes"), "1 to 64 bytes, or none for no key")
    }

    /// The caller's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({})", self.as_bytes().escape_ascii())
    }
}

/// A request to buy `quantity` copies of `book`, all or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// The book; it need not exist.
    pub book: BookId,
    /// At least 1.
    pub quantity: u32,
    /// Present if the caller may retry.
    pub key: Option<IdempotencyKey>,
    /// The buyer's deadline; a purchase that cannot be on disk by then is refused.
    pub deadline: Option<Instant>,
}

/// Business outcome of a purchase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The copies are sold, durably.
    Bought,
    /// No copy is left.
    SoldOut,
    /// Fewer copies are left than requested.
    TooFew,
    /// The catalogue has no such id.
    NoSuchBook,
}

impl Verdict {
    /// In the order of the variants.
    pub const ALL: [Self; 4] = [Self::Bought, Self::SoldOut, Self::TooFew, Self::NoSuchBook];

    /// The name in metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bought => "bought",
            Self::SoldOut => "sold_out",
            Self::TooFew => "too_few",
            Self::NoSuchBook => "no_such_book",
        }
    }
}

/// The answer to a [`Purchase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The outcome.
    pub verdict: Verdict,
    /// Number of its log entry; refusals without a key are not logged.
    pub number: Option<i64>,
    /// Copies left after this purchase; `None` if the book does not exist.
    pub stock_left: Option<u32>,
    /// True for the stored answer to an earlier request with the same key.
    pub replayed: bool,
}

/// The answer to a restock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restocked {
    /// Number of books that had fewer copies.
    pub books_raised: u64,
}

/// The answer to a price change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceChange {
    /// Number of its log entry.
    pub number: i64,
    /// The old price.
    pub before: Cents,
    /// The new price.
    pub after: Cents,
}

/// Kind of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// It was added to the catalogue, with `after` copies.
    Added,
    /// Copies were sold.
    Purchase,
    /// A purchase with a key was refused; retries must be refused as well.
    Refused,
    /// The operator raised its stock.
    Restock,
    /// Its price changed; `before` and `after` are cents.
    Price,
    /// Another program changed its stock in the database.
    Adjusted,
    /// Another program removed it from the catalogue.
    Removed,
    /// Another program changed its title or topic.
    Edited,
}

impl EntryKind {
    /// In the order of their codes in the store, starting at 1.
    pub const ALL: [Self; 8] = [
        Self::Added,
        Self::Purchase,
        Self::Refused,
        Self::Restock,
        Self::Price,
        Self::Adjusted,
        Self::Removed,
        Self::Edited,
    ];

    /// The name in answers and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Purchase => "purchase",
            Self::Refused => "refused",
            Self::Restock => "restock",
            Self::Price => "price",
            Self::Adjusted => "adjusted",
            Self::Removed => "removed",
            Self::Edited => "edited",
        }
    }
}

/// One line of the transaction log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// 1, 2, 3 … in the order of commits.
    pub number: i64,
    /// Milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The kind.
    pub kind: EntryKind,
    /// The book.
    pub book: BookId,
    /// Copies requested by a purchase.
    pub quantity: Option<u32>,
    /// Copies, or cents for a price; `None` if the book did not exist.
    pub before: Option<i64>,
    /// As `before`.
    pub after: Option<i64>,
    /// The purchase's key.
    pub key: Option<IdempotencyKey>,
}

impl Entry {
    /// The answer to the recorded purchase.
    pub fn receipt(&self) -> Receipt {
        let stock = |copies: Option<i64>| copies.and_then(|copies| u32::try_from(copies).ok());
        let verdict = match (self.kind, stock(self.after)) {
            (EntryKind::Purchase, _) => Verdict::Bought,
            (_, None) => Verdict::NoSuchBook,
            (_, Some(0)) => Verdict::SoldOut,
            (_, Some(_)) => Verdict::TooFew,
        };
        Receipt { verdict, number: Some(self.number), stock_left: stock(self.after), replayed: true }
    }
}
