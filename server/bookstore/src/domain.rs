//! Books, purchases and log entries, with units in the types.

use std::{fmt, hash::Hasher as _, net::IpAddr, sync::Arc, time::Instant};

use hosting::Client;
use siphasher::sip::SipHasher13;

use crate::{fault::Fault, money::Cents};

/// A book's number in the catalogue, from 1 to `i32::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookId(i32);

impl BookId {
    /// The lowest one.
    pub(crate) const FIRST: Self = Self(1);

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

    /// The number above it; `None` for the last.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(id) => Self::new(id),
            None => None,
        }
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

/// Longest title in bytes; a longer one indicates a broken file.
pub const TITLE_BYTES_MAX: usize = 4096;

/// Name of the operator who makes a change, for the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actor(Arc<str>);

impl Actor {
    /// The operator at the console of the server.
    pub fn console() -> Self {
        Self("console".into())
    }

    /// An operator without a credential, where the server needs none.
    pub fn unnamed() -> Self {
        Self("-".into())
    }

    /// The holder of a credential, or [`Actor::unnamed`] if the name is empty.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        if name.is_empty() { Self::unnamed() } else { Self(name) }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True for a character that controls a terminal or the direction of text, which could disguise a title.
fn is_unseen(sign: char) -> bool {
    let steers =
        matches!(sign, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    sign.is_control() || steers
}

/// Checks a title or topic: 1 to `most` bytes, and all of it visible. Returns it without white space around it, or the
/// reason.
pub(crate) fn checked_text(field: &'static str, text: &str, most: usize) -> Result<String, Fault> {
    let text = text.trim();
    if let Some(sign) = text.chars().find(|sign| is_unseen(*sign)) {
        let code = u32::from(sign);
        let want = format!("without the invisible control character U+{code:04X}");
        return Err(Fault::invalid_word(field, text, want));
    }
    let fits = !text.is_empty() && text.len() <= most;
    if fits { Ok(text.to_owned()) } else { Err(Fault::invalid_word(field, text, format!("1 to {most} bytes of text"))) }
}

/// A new book, or a book from a file or a store.
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
    /// False for a book that shoppers do not find.
    pub listed: bool,
}

/// A book that an operator adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// `None` for the number above the highest.
    pub id: Option<i32>,
    /// As in [`NewBook`].
    pub title: String,
    /// As in [`NewBook`].
    pub topic: String,
    /// As in [`NewBook`].
    pub stock: i64,
    /// In cents.
    pub price_cents: i64,
}

/// Changes of a book; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// The new title.
    pub title: Option<String>,
    /// The new topic.
    pub topic: Option<String>,
    /// The new price in cents.
    pub price_cents: Option<i64>,
    /// False takes it out of the shop, true puts it back.
    pub listed: Option<bool>,
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

/// The client that a reservation counts for: the holders of one credential, or an address as [`Client`] has it. Kept as a sum,
/// like [`KeyOwner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder(i64);

impl Holder {
    #[cfg(feature = "postgres")]
    pub(crate) const fn from_stored(sum: i64) -> Self {
        Self(sum)
    }

    #[cfg(feature = "postgres")]
    pub(crate) const fn stored(self) -> i64 {
        self.0
    }

    /// The holders of the credential that a key belongs to; `None` for a key of callers without one.
    pub(crate) fn of_owner(owner: KeyOwner) -> Option<Self> {
        (owner != KeyOwner::COMMON).then_some(Self(owner.0))
    }
}

impl From<&Client> for Holder {
    fn from(client: &Client) -> Self {
        if let Client::Credential(name) = client {
            return Self(KeyOwner::named(name).0);
        }
        let mut hasher = SipHasher13::new();
        // A form of our own: it is kept in the database, by servers of other releases, too.
        match client {
            Client::Address(IpAddr::V4(address)) => hasher.write(&address.octets()),
            Client::Address(IpAddr::V6(address)) => hasher.write(&address.octets()),
            _ => {}
        }
        Self(hasher.finish().max(1).cast_signed())
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
    /// The price that the buyer has seen: at another one nothing is sold. `None` to buy at any.
    pub agreed: Option<Cents>,
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

/// A request to hold `quantity` copies of `book` for a time, all or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The book; it need not exist.
    pub book: BookId,
    /// At least 1.
    pub quantity: u32,
    /// Names the reservation.
    pub key: IdempotencyKey,
    /// The caller.
    pub holder: Holder,
    /// At least 1.
    pub seconds: u32,
    /// As in [`Purchase`].
    pub deadline: Option<Instant>,
}

/// A request to end a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldEnd {
    /// The reservation's.
    pub key: IdempotencyKey,
    /// True to buy the copies, false to give them back.
    pub confirms: bool,
    /// As in [`Purchase`].
    pub deadline: Option<Instant>,
}

/// State of a reservation, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// The copies are held.
    Held,
    /// Confirmed: the copies are sold.
    Bought,
    /// Its holder gave the copies back.
    Released,
    /// Its time is over, and the copies were given back.
    Expired,
    /// No copy is left to hold.
    SoldOut,
    /// Fewer copies are left than requested.
    TooFew,
    /// The catalogue has no such id.
    NoSuchBook,
    /// No reservation has the key.
    NoSuchReservation,
}

impl HoldState {
    /// In the order of the variants.
    pub const ALL: [Self; 8] = [
        Self::Held,
        Self::Bought,
        Self::Released,
        Self::Expired,
        Self::SoldOut,
        Self::TooFew,
        Self::NoSuchBook,
        Self::NoSuchReservation,
    ];

    /// The name in metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Bought => "bought",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::SoldOut => "sold_out",
            Self::TooFew => "too_few",
            Self::NoSuchBook => "no_such_book",
            Self::NoSuchReservation => "no_such_reservation",
        }
    }
}

/// The answer to a [`Hold`] or [`HoldEnd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The state after the request.
    pub state: HoldState,
    /// Book, copies and, in milliseconds since the Unix epoch, the end of the reservation's time, 0 for one that was refused;
    /// `None` if no reservation has the key.
    pub held: Option<(BookId, u32, i64)>,
    /// Number of the log entry that led to the state; `None` if there is none.
    pub number: Option<i64>,
    /// Copies left after that entry; `None` if the book does not exist.
    pub stock_left: Option<u32>,
    /// True if an earlier request, or time, led to the state.
    pub replayed: bool,
    /// Time of the answer, in milliseconds since the Unix epoch.
    pub now_ms: i64,
}

impl Reservation {
    /// The purchase that this request made or repeated, if it did.
    pub(crate) fn purchase(&self) -> Option<Receipt> {
        let Self { number, stock_left, replayed, .. } = *self;
        let receipt = Receipt { verdict: Verdict::Bought, number, stock_left, replayed };
        (self.state == HoldState::Bought).then_some(receipt)
    }
}

/// The answer to a restock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restocked {
    /// Number of books that had fewer copies.
    pub books_raised: u64,
}

/// The answer to a restock of one book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    /// Number of its log entry; `None` if the book had enough copies.
    pub number: Option<i64>,
    /// Copies before.
    pub before: u32,
    /// Copies now.
    pub after: u32,
}

/// The answer to an addition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addition {
    /// The book, and the number of its log entry.
    Added(NewBook, i64),
    /// The book that has the id already.
    Taken(NewBook),
}

/// The answer to an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The book before.
    pub before: NewBook,
    /// The book now.
    pub after: NewBook,
    /// Number of its last log entry; `None` if nothing changed.
    pub number: Option<i64>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Its stock was set, by an import or by another program in the database.
    Adjusted,
    /// Another program removed it from the catalogue.
    Removed,
    /// Its title or topic changed.
    Edited,
    /// It was taken out of the shop; `before` is 1 and `after` 0.
    Delisted,
    /// It came back into the shop; `before` is 0 and `after` 1.
    Listed,
    /// Copies are held for the holder of the key, and not in the stock any more. The purchase that confirms it has the same
    /// key, and the same copies before and after.
    Reserved,
    /// The copies of the reservation with this key were given back, by its holder or because its time was over.
    Released,
}

impl EntryKind {
    /// In the order of their codes on the wire, starting at 1.
    pub const ALL: [Self; 12] = [
        Self::Added,
        Self::Purchase,
        Self::Refused,
        Self::Restock,
        Self::Price,
        Self::Adjusted,
        Self::Removed,
        Self::Edited,
        Self::Delisted,
        Self::Listed,
        Self::Reserved,
        Self::Released,
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
            Self::Delisted => "delisted",
            Self::Listed => "listed",
            Self::Reserved => "reserved",
            Self::Released => "released",
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
    /// Copies requested by a purchase or reservation.
    pub quantity: Option<u32>,
    /// Copies, or cents for a price; `None` if the book did not exist.
    pub before: Option<i64>,
    /// As `before`.
    pub after: Option<i64>,
    /// The key of the purchase or reservation.
    pub key: Option<IdempotencyKey>,
    /// The operator; `None` for purchases, reservations and changes by other programs.
    pub actor: Option<Actor>,
    /// End of a reservation's time, in milliseconds since the Unix epoch; for `Released` only if the time was over, and
    /// `None` for other kinds.
    pub until_ms: Option<i64>,
}

/// Choice of log entries; what is `None` or empty chooses all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// From this time on, in milliseconds since the Unix epoch.
    pub from_ms: Option<i64>,
    /// Before this time.
    pub to_ms: Option<i64>,
    /// Of this book.
    pub book: Option<BookId>,
    /// Of these kinds.
    pub kinds: Vec<EntryKind>,
}

/// The rows of a summary of sales.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SalesBy {
    /// A row a day.
    #[default]
    Day,
    /// A row a book.
    Book,
    /// A row for each book of each day.
    DayAndBook,
}

/// A summary of sales that is wanted; what is `None` chooses all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SalesQuery {
    /// From this time on, in milliseconds since the Unix epoch.
    pub from_ms: Option<i64>,
    /// Before this time.
    pub to_ms: Option<i64>,
    /// Its rows.
    pub by: SalesBy,
    /// Of this book alone.
    pub book: Option<BookId>,
}

/// Sums of purchases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sold {
    /// Purchases.
    pub purchases: u64,
    /// Copies in them.
    pub copies: u64,
    /// Their price, in hundredths.
    pub cents: i64,
    /// Copies that are not in `cents`, because another program removed the book and its price with it.
    pub copies_unpriced: u64,
}

impl Sold {
    /// Adds a purchase of that many copies at a price in cents.
    pub(crate) fn add(&mut self, copies: u32, price: Option<i64>) {
        self.purchases += 1;
        self.copies += u64::from(copies);
        match price {
            Some(price) => self.cents = self.cents.saturating_add(price.saturating_mul(copies.into())),
            None => self.copies_unpriced += u64::from(copies),
        }
    }

    /// Adds the sums of others.
    pub(crate) fn add_sums(&mut self, other: &Self) {
        self.purchases += other.purchases;
        self.copies += other.copies;
        self.cents = self.cents.saturating_add(other.cents);
        self.copies_unpriced += other.copies_unpriced;
    }
}

/// A day in UTC, shown as `2026-01-31`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(i64);

impl Day {
    /// The day that is that many days after 1970-01-01.
    pub(crate) const fn since_epoch(days: i64) -> Self {
        Self(days)
    }
}

impl fmt::Display for Day {
    /// By Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day is a year's last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.saturating_add(719_468);
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        write!(f, "{:04}-{month:02}-{day:02}", year_of_era + era * 400 + next)
    }
}

/// A row of a summary of sales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalesRow {
    /// The day, if rows are by day.
    pub day: Option<Day>,
    /// The book, if rows are by book.
    pub book: Option<BookId>,
    /// The book's title now, if it is there.
    pub title: Option<Arc<str>>,
    /// The sums.
    pub sold: Sold,
}

/// A summary of sales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sales {
    /// By day, and in a day by book.
    pub rows: Vec<SalesRow>,
    /// The sums of all rows.
    pub total: Sold,
}

impl Entry {
    /// True for the entry that ends a reservation: its copies are given back, or sold without a change of the stock.
    pub(crate) fn ends_reservation(&self) -> bool {
        self.kind == EntryKind::Released || self.kind == EntryKind::Purchase && self.before == self.after
    }

    /// Copies after it; `None` if the book does not exist.
    pub(crate) fn stock_left(&self) -> Option<u32> {
        self.after.and_then(|copies| u32::try_from(copies).ok())
    }

    /// The answer to the recorded purchase.
    pub fn receipt(&self) -> Receipt {
        let verdict = match (self.kind, self.stock_left()) {
            (EntryKind::Purchase, _) => Verdict::Bought,
            (_, None) => Verdict::NoSuchBook,
            (_, Some(0)) => Verdict::SoldOut,
            (_, Some(_)) => Verdict::TooFew,
        };
        Receipt { verdict, number: Some(self.number), stock_left: self.stock_left(), replayed: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_shown_as_dates() {
        for (days, date) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_484, "2026-01-31"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(Day::since_epoch(days).to_string(), date);
        }
    }

    #[test]
    fn texts_are_visible_not_empty_and_not_too_long() {
        assert_eq!(checked_text("title", " A b ", 3), Ok("A b".to_owned()));
        for text in ["", "  ", "four", "A\u{202e}b", "a\nb"] {
            assert!(checked_text("title", text, 3).is_err(), "{text}");
        }
    }
}
