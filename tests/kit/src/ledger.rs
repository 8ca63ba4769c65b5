//! Model of a bookstore's log, by the contract: each entry follows from those before it. Tests replay a log that a server
//! shows, and models append the entries that it must show.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Kind of an entry, with its number in the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A book came into the catalogue.
    Added = 1,
    /// A purchase.
    Purchase = 2,
    /// A purchase with a key that was refused.
    Refused = 3,
    /// A restock.
    Restock = 4,
    /// A change of price, in cents.
    Price = 5,
    /// An import or another program set the stock.
    Adjusted = 6,
    /// Another program removed the book.
    Removed = 7,
    /// The title or the topic changed.
    Edited = 8,
    /// The book was taken out of the shop.
    Delisted = 9,
    /// The book came back into the shop.
    Listed = 10,
    /// Copies are held.
    Reserved = 11,
    /// Held copies were given back.
    Released = 12,
}

impl Kind {
    /// The kind with this number.
    pub fn of(number: i32) -> Option<Self> {
        use Kind::{
            Added, Adjusted, Delisted, Edited, Listed, Price, Purchase, Refused, Released, Removed, Reserved, Restock,
        };
        let all =
            [Added, Purchase, Refused, Restock, Price, Adjusted, Removed, Edited, Delisted, Listed, Reserved, Released];
        all.into_iter().find(|kind| *kind as i32 == number)
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// The book's id.
    pub book: i64,
    /// Copies that a purchase asked for.
    pub quantity: Option<i64>,
    /// Copies or cents before it; `None` without such a book.
    pub before: Option<i64>,
    /// Copies or cents after it.
    pub after: Option<i64>,
    /// Idempotency key; empty without one.
    pub key: Vec<u8>,
}

/// Stock, prices and keys after the entries so far.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
    stock: BTreeMap<i64, i64>,
    delisted: BTreeSet<i64>,
    /// Prices that the log has set.
    pub prices: BTreeMap<i64, i64>,
    keys: HashMap<Vec<u8>, usize>,
    /// Books and copies of open reservations, by key.
    held: HashMap<Vec<u8>, (i64, i64)>,
}

impl Ledger {
    /// Appends an entry and returns its number among the entries, from 1; refuses one that does not follow.
    pub fn append(&mut self, entry: Entry) -> Result<usize, String> {
        let known = self.stock.get(&entry.book).copied();
        // What shoppers see.
        let seen = known.filter(|_| !self.delisted.contains(&entry.book));
        let hold = Some((entry.book, entry.quantity.unwrap_or_default()));
        // A purchase that confirms a reservation has the same copies before and after.
        let ends_hold = entry.kind == Kind::Released || entry.kind == Kind::Purchase && entry.before == entry.after;
        let follows = match entry.kind {
            Kind::Purchase if ends_hold => entry.before == known && self.held.get(&entry.key).copied() == hold,
            Kind::Released => {
                let after = known.zip(entry.quantity).map(|(known, quantity)| known + quantity);
                (entry.before, entry.after) == (known, after) && self.held.get(&entry.key).copied() == hold
            }
            Kind::Reserved => {
                let left = seen.zip(entry.quantity).map(|(seen, quantity)| seen - quantity);
                entry.before == seen && entry.after == left && left.is_some_and(|left| left >= 0)
            }
            Kind::Added => known.is_none() && entry.before == Some(0),
            Kind::Purchase => {
                let left = seen.zip(entry.quantity).map(|(seen, quantity)| seen - quantity);
                entry.before == seen && entry.after == left && left.is_some_and(|left| left >= 0)
            }
            Kind::Refused => {
                let is_enough = seen.zip(entry.quantity).is_some_and(|(seen, quantity)| seen >= quantity);
                (entry.before, entry.after) == (seen, seen) && !is_enough
            }
            Kind::Restock => entry.before == known && entry.after > known,
            Kind::Adjusted => entry.before == known,
            Kind::Delisted => seen.is_some(),
            Kind::Listed => seen.is_none() && known.is_some(),
            Kind::Price | Kind::Removed | Kind::Edited => true,
        };
        if !follows {
            return Err(format!("{entry:?} does not follow from a stock of {known:?}"));
        }
        match (entry.kind, entry.after) {
            (Kind::Price, Some(cents)) => drop(self.prices.insert(entry.book, cents)),
            (Kind::Removed, _) => {
                self.stock.remove(&entry.book);
                self.delisted.remove(&entry.book);
            }
            (Kind::Delisted, _) => _ = self.delisted.insert(entry.book),
            (Kind::Listed, _) => _ = self.delisted.remove(&entry.book),
            (
                Kind::Added | Kind::Purchase | Kind::Restock | Kind::Adjusted | Kind::Reserved | Kind::Released,
                Some(after),
            ) => {
                self.stock.insert(entry.book, after);
            }
            _ => {}
        }
        let number = self.entries.len() + 1;
        if ends_hold {
            self.held.remove(&entry.key);
        } else if !entry.key.is_empty() && self.keys.insert(entry.key.clone(), number).is_some() {
            return Err(format!("a key was used twice: {entry:?}"));
        }
        if entry.kind == Kind::Reserved {
            self.held.extend(hold.map(|hold| (entry.key.clone(), hold)));
        }
        self.entries.push(entry);
        Ok(number)
    }

    /// Appends the purchase of `quantity` copies, or its refusal if it has a key, and returns the copies left, if there
    /// is such a book, with the entry's number, if there is an entry.
    pub fn buy(&mut self, book: i64, quantity: i64, key: &[u8]) -> (Option<i64>, Option<usize>) {
        let before = self.stock(book);
        let is_sold = before.is_some_and(|before| before >= quantity);
        let after = before.map(|before| if is_sold { before - quantity } else { before });
        let kind = if is_sold { Kind::Purchase } else { Kind::Refused };
        let entry = Entry { kind, book, quantity: Some(quantity), before, after, key: key.to_owned() };
        let number = (is_sold || !key.is_empty()).then(|| self.append(entry).expect("a new key"));
        (after, number)
    }

    /// Raises each stock below `amount` to it and returns the number of books raised.
    pub fn restock(&mut self, amount: i64) -> usize {
        let low: Vec<i64> = self.stock.iter().filter(|(_, stock)| **stock < amount).map(|(book, _)| *book).collect();
        for book in &low {
            let (before, after) = (self.stock(*book), Some(amount));
            let entry = Entry { kind: Kind::Restock, book: *book, quantity: None, before, after, key: Vec::new() };
            self.append(entry).expect("the stock rises");
        }
        low.len()
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Copies of a book.
    pub fn stock(&self, book: i64) -> Option<i64> {
        self.stock.get(&book).copied()
    }

    /// Copies by book.
    pub fn stocks(&self) -> &BTreeMap<i64, i64> {
        &self.stock
    }

    /// Number of the entry with this key, from 1.
    pub fn with_key(&self, key: &[u8]) -> Option<usize> {
        self.keys.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(stock: i64) -> Ledger {
        let mut ledger = Ledger::default();
        let entry =
            Entry { kind: Kind::Added, book: 1, quantity: None, before: Some(0), after: Some(stock), key: Vec::new() };
        ledger.append(entry).expect("the first entry");
        ledger
    }

    #[test]
    fn a_delisted_book_is_not_sold_until_it_is_listed_again() {
        let mut ledger = added(3);
        let entry = |kind, quantity, before, after| Entry { kind, book: 1, quantity, before, after, key: Vec::new() };
        ledger.append(entry(Kind::Listed, None, Some(0), Some(1))).expect_err("it is listed");
        ledger.append(entry(Kind::Delisted, None, Some(1), Some(0))).expect("it was listed");
        ledger.append(entry(Kind::Purchase, Some(1), Some(3), Some(2))).expect_err("it is delisted");
        ledger.append(entry(Kind::Refused, Some(1), None, None)).expect("there is no such book");
        ledger.append(entry(Kind::Listed, None, Some(0), Some(1))).expect("it was delisted");
        ledger.append(entry(Kind::Purchase, Some(1), Some(3), Some(2))).expect("it is listed");
    }

    #[test]
    fn a_reservation_ends_once_and_as_it_began() {
        let mut ledger = added(3);
        let entry = |kind, quantity, before, after, key: &[u8]| {
            let (quantity, before, after, key) = (Some(quantity), Some(before), Some(after), key.to_vec());
            Entry { kind, book: 1, quantity, before, after, key }
        };
        ledger.append(entry(Kind::Reserved, 4, 3, -1, b"a")).expect_err("too few");
        ledger.append(entry(Kind::Reserved, 2, 3, 1, b"a")).expect("they are there");
        ledger.append(entry(Kind::Purchase, 2, 1, 1, b"b")).expect_err("another key");
        ledger.append(entry(Kind::Purchase, 1, 1, 1, b"a")).expect_err("other copies");
        ledger.append(entry(Kind::Purchase, 2, 1, 1, b"a")).expect("it is held");
        ledger.append(entry(Kind::Released, 2, 1, 3, b"a")).expect_err("it is sold");
        ledger.append(entry(Kind::Reserved, 1, 1, 0, b"b")).expect("it is there");
        ledger.append(entry(Kind::Released, 1, 0, 1, b"b")).expect("it is held");
        assert_eq!(ledger.stock(1), Some(1));
        ledger.append(entry(Kind::Reserved, 1, 1, 0, b"a")).expect_err("the key is used");
    }

    #[test]
    fn what_it_makes_can_be_replayed_and_a_changed_entry_cannot() {
        let mut ledger = added(3);
        assert_eq!(ledger.buy(1, 2, b"a"), (Some(1), Some(2)));
        assert_eq!(ledger.buy(1, 2, b"b"), (Some(1), Some(3)));
        assert_eq!(ledger.buy(1, 2, b""), (Some(1), None));
        assert_eq!(ledger.buy(2, 1, b"c"), (None, Some(4)));
        assert_eq!(ledger.restock(5), 1);
        let replayed = |change: &dyn Fn(usize, &mut Entry)| {
            ledger.entries().iter().enumerate().try_fold(Ledger::default(), |mut again, (place, entry)| {
                let mut entry = entry.clone();
                change(place, &mut entry);
                again.append(entry).map(|_| again)
            })
        };
        assert_eq!(replayed(&|_, _| {}).map(|again| again.stock(1)), Ok(Some(5)));
        for change in 0..ledger.entries().len() {
            assert!(
                replayed(&|place, entry| entry.before = entry.before.map(|it| it + i64::from(place == change)))
                    .is_err()
                    || change == 3
            );
        }
        assert!(
            replayed(&|_, entry| entry.key = if entry.key.is_empty() { Vec::new() } else { b"one".to_vec() }).is_err()
        );
    }
}
