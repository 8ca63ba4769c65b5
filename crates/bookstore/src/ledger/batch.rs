//! The rules of one transaction: what each job does to books and to the log, given all jobs before it.
//!
//! A [`Batch`] only decides; nothing here begins, commits or publishes.

use std::{collections::HashMap, sync::Arc};

use super::{keys::Keys, trouble::Trouble};
use crate::{
    catalogue::{Book, Catalogue},
    domain::{BookId, Entry, EntryKind, IdempotencyKey, PriceChange, Purchase, Receipt, Verdict},
    fault::Fault,
    money::Cents,
    store::{BookChange, Writer},
};

/// What a transaction is about to write.
pub(crate) struct Batch<'a> {
    catalogue: &'a Catalogue,
    keys: &'a Keys,
    time_ms: i64,
    next_number: i64,
    drafts: HashMap<BookId, Draft>,
    entries: Vec<Entry>,
    new_keys: HashMap<IdempotencyKey, usize>,
}

/// A book as it will be after the transaction.
struct Draft {
    book: Arc<Book>,
    before: (u32, Cents),
    stock: u32,
    price: Cents,
}

impl<'a> Batch<'a> {
    /// `last_number` is the newest entry in the file.
    pub(crate) fn new(catalogue: &'a Catalogue, keys: &'a Keys, last_number: i64, time_ms: i64) -> Self {
        Self {
            catalogue,
            keys,
            time_ms,
            next_number: last_number + 1,
            drafts: HashMap::new(),
            entries: Vec::new(),
            new_keys: HashMap::new(),
        }
    }

    fn draft(&mut self, id: BookId) -> Option<&mut Draft> {
        use std::collections::hash_map::Entry::{Occupied, Vacant};
        match self.drafts.entry(id) {
            Occupied(found) => Some(found.into_mut()),
            Vacant(place) => {
                let book = Arc::clone(self.catalogue.get(id)?);
                let (stock, price) = (book.stock(), book.price());
                Some(place.insert(Draft { book, before: (stock, price), stock, price }))
            }
        }
    }

    fn log(&mut self, book: BookId, kind: EntryKind, before: Option<i64>, after: Option<i64>) -> &mut Entry {
        let number = self.next_number;
        self.next_number += 1;
        let entry = Entry { number, time_ms: self.time_ms, kind, book, quantity: None, before, after, key: None };
        self.entries.push(entry);
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }

    /// Sells all copies or none.
    pub(crate) fn purchase(
        &mut self,
        writer: &mut Writer<'_>,
        wish: &Purchase,
    ) -> Result<Result<Receipt, Fault>, Trouble> {
        if let Some(key) = &wish.key {
            let earlier = match self.new_keys.get(key) {
                Some(place) => Some(self.entries[*place].clone()),
                None => self.keys.find(writer, key)?,
            };
            if let Some(earlier) = earlier {
                return Ok(replay(&earlier, wish));
            }
        }
        let stock = self.draft(wish.book).map(|draft| {
            let before = draft.stock;
            draft.stock = before.checked_sub(wish.quantity).unwrap_or(before);
            (before, draft.stock)
        });
        let verdict = match stock {
            None => Verdict::NoSuchBook,
            Some((before, after)) if after < before => Verdict::Bought,
            Some((0, _)) => Verdict::SoldOut,
            Some(_) => Verdict::TooFew,
        };
        let stock_left = stock.map(|(_, after)| after);
        let bought = verdict == Verdict::Bought;
        if !bought && wish.key.is_none() {
            return Ok(Ok(Receipt { verdict, number: None, stock_left, replayed: false }));
        }
        let kind = if bought { EntryKind::Purchase } else { EntryKind::Refused };
        let (before, after) = (stock.map(|s| s.0.into()), stock.map(|s| s.1.into()));
        let entry = self.log(wish.book, kind, before, after);
        (entry.quantity, entry.key) = (Some(wish.quantity), wish.key);
        let number = entry.number;
        if let Some(key) = wish.key {
            self.new_keys.insert(key, self.entries.len() - 1);
        }
        Ok(Ok(Receipt { verdict, number: Some(number), stock_left, replayed: false }))
    }

    /// `None` when there is no such book.
    pub(crate) fn set_price(&mut self, id: BookId, price: Cents) -> Option<PriceChange> {
        let draft = self.draft(id)?;
        let before = draft.price;
        draft.price = price;
        let entry = self.log(id, EntryKind::Price, Some(before.get()), Some(price.get()));
        Some(PriceChange { number: entry.number, before, after: price })
    }

    /// Whether the book had fewer copies than `amount`.
    pub(crate) fn raise_stock(&mut self, id: BookId, amount: u32) -> bool {
        let Some(draft) = self.draft(id).filter(|draft| draft.stock < amount) else { return false };
        let before = draft.stock;
        draft.stock = amount;
        self.log(id, EntryKind::Restock, Some(before.into()), Some(amount.into()));
        true
    }

    /// Writes everything in the open transaction: one UPDATE a book, the log many rows to a statement.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), Trouble> {
        for draft in self.drafts.values() {
            let (stock_before, price_before) = draft.before;
            if (draft.stock, draft.price) == draft.before {
                continue;
            }
            let change = BookChange {
                id: draft.book.id(),
                stock: (stock_before, draft.stock),
                price_cents: (price_before.get(), draft.price.get()),
            };
            if !writer.change_book(&change)? {
                return Err(Trouble::Stale);
            }
        }
        Ok(writer.append(&self.entries)?)
    }

    /// Up to `most` ids above `after`, in order.
    pub(crate) fn books_after(&self, after: Option<BookId>, most: usize) -> impl Iterator<Item = BookId> + use<'a> {
        self.catalogue.after(after).take(most).map(|book| book.id())
    }

    /// How many log entries it writes.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many new keys it has.
    pub(crate) fn new_keys(&self) -> usize {
        self.new_keys.len()
    }

    /// The committed facts, for memory to take over.
    pub(crate) fn into_committed(self) -> Committed {
        let keys = self.new_keys.into_iter().map(|(key, place)| (key, self.entries[place].number)).collect();
        Committed { last_number: self.next_number - 1, drafts: self.drafts, keys }
    }
}

/// What a committed transaction changed.
pub(crate) struct Committed {
    pub last_number: i64,
    drafts: HashMap<BookId, Draft>,
    pub keys: Vec<(IdempotencyKey, i64)>,
}

impl Committed {
    /// Shows readers the new stock and prices.
    pub(crate) fn publish(&self) {
        for draft in self.drafts.values() {
            draft.book.publish(draft.stock, draft.price);
        }
    }
}

/// The first answer again, if the request is the same.
fn replay(earlier: &Entry, wish: &Purchase) -> Result<Receipt, Fault> {
    if earlier.book == wish.book && earlier.quantity == Some(wish.quantity) {
        return Ok(earlier.receipt());
    }
    let quantity = earlier.quantity.unwrap_or_default();
    Err(Fault::KeyReused { number: earlier.number, book: earlier.book.get(), quantity })
}
