//! The ledger's jobs, and the rules of one transaction: each job's effect on books and log, after all jobs before it.
//! The rules only decide; the store begins, commits and publishes.

use std::{
    collections::{BTreeMap, HashMap},
    time::{SystemTime, UNIX_EPOCH},
};

use commit::Pending;

use crate::{
    domain::{BookId, Entry, EntryKind, IdempotencyKey, PriceChange, Purchase, Receipt, Restocked, Verdict},
    fault::Fault,
    money::Cents,
    store::{BookChange, Changes, Facts},
};

/// Work for a transaction.
pub(super) enum Job {
    Purchase(Purchase),
    SetPrice(BookId, Cents),
    /// Runs in separate transactions.
    Restock(u32),
}

impl Job {
    /// The book that it is about, if it is about one.
    pub(super) const fn book(&self) -> Option<BookId> {
        match self {
            Self::Purchase(purchase) => Some(purchase.book),
            Self::SetPrice(book, _) => Some(*book),
            Self::Restock(_) => None,
        }
    }
}

/// Decision on a job.
pub(super) enum Decision {
    Purchase(Receipt),
    Price(Option<PriceChange>),
    Restocked(Restocked),
}

pub(super) type JobResult = Result<Decision, Fault>;

/// A job with its waiting caller.
pub(super) type PendingJob = Pending<Job, JobResult>;

/// Decides on the facts of a transaction, and collects its writes.
pub(super) struct Rules<'f> {
    facts: &'f mut Facts,
    time_ms: i64,
    /// `None` for a book that does not exist.
    drafts: BTreeMap<BookId, Option<Draft>>,
    entries: Vec<Entry>,
    new_keys: HashMap<IdempotencyKey, usize>,
    repeats: bool,
}

/// A book's state after the transaction.
struct Draft {
    before: (u32, Cents),
    stock: u32,
    price: Cents,
}

impl<'f> Rules<'f> {
    pub(super) fn new(facts: &'f mut Facts) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let (drafts, new_keys) = (BTreeMap::new(), HashMap::new());
        Self { facts, time_ms, drafts, entries: Vec::new(), new_keys, repeats: false }
    }

    fn draft(&mut self, id: BookId) -> Option<&mut Draft> {
        let facts = &*self.facts;
        let draft = || facts.book(id).map(|(stock, price)| Draft { before: (stock, price), stock, price });
        self.drafts.entry(id).or_insert_with(draft).as_mut()
    }

    fn log(&mut self, book: BookId, kind: EntryKind, before: Option<i64>, after: Option<i64>) -> &mut Entry {
        let number = self.facts.next_number(book);
        let entry = Entry { number, time_ms: self.time_ms, kind, book, quantity: None, before, after, key: None };
        self.entries.push(entry);
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }

    /// Decides a purchase or a price change.
    pub(super) fn decide(&mut self, job: &Job) -> Option<JobResult> {
        match job {
            Job::Purchase(purchase) => Some(self.purchase(purchase).map(Decision::Purchase)),
            Job::SetPrice(book, price) => Some(Ok(Decision::Price(self.set_price(*book, *price)))),
            Job::Restock(_) => None,
        }
    }

    /// Sells all copies or none.
    fn purchase(&mut self, wish: &Purchase) -> Result<Receipt, Fault> {
        if let Some(key) = &wish.key {
            let earlier = match self.new_keys.get(key) {
                Some(index) => Some(&self.entries[*index]),
                None => self.facts.earlier(key),
            };
            // A key in the common space may be another caller's, so it counts for the same purchase alone.
            let earlier = earlier.filter(|earlier| earlier.key == wish.key || is_repeated(earlier, wish));
            if let Some(earlier) = earlier {
                self.repeats = true;
                return replay(earlier, wish);
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
            return Ok(Receipt { verdict, number: None, stock_left, replayed: false });
        }
        let kind = if bought { EntryKind::Purchase } else { EntryKind::Refused };
        let (before, after) = (stock.map(|s| s.0.into()), stock.map(|s| s.1.into()));
        let entry = self.log(wish.book, kind, before, after);
        (entry.quantity, entry.key) = (Some(wish.quantity), wish.key);
        let number = entry.number;
        if let Some(key) = wish.key {
            self.new_keys.insert(key, self.entries.len() - 1);
        }
        Ok(Receipt { verdict, number: Some(number), stock_left, replayed: false })
    }

    /// Sets a price; `None` if the book does not exist.
    fn set_price(&mut self, id: BookId, price: Cents) -> Option<PriceChange> {
        let draft = self.draft(id)?;
        let before = draft.price;
        draft.price = price;
        let entry = self.log(id, EntryKind::Price, Some(before.get()), Some(price.get()));
        Some(PriceChange { number: entry.number, before, after: price })
    }

    /// Raises a book's stock; true if it had fewer copies than `amount`.
    fn raise_stock(&mut self, id: BookId, amount: u32) -> bool {
        let Some(draft) = self.draft(id).filter(|draft| draft.stock < amount) else { return false };
        let before = draft.stock;
        draft.stock = amount;
        self.log(id, EntryKind::Restock, Some(before.into()), Some(amount.into()));
        true
    }

    /// Raises the wanted books with fewer copies than `amount`; returns their number, and where to continue if there
    /// may be more.
    pub(super) fn raise_below(&mut self, amount: u32) -> (usize, Option<BookId>) {
        let (books, after) = self.facts.below();
        let raised = books.into_iter().filter(|id| self.raise_stock(*id, amount)).count();
        (raised, after)
    }

    /// The decided changes.
    pub(super) fn into_changes(self) -> Changes {
        let books = self.drafts.into_iter().filter_map(|(id, draft)| Some((id, draft?)));
        let changed = books.filter(|(_, draft)| (draft.stock, draft.price) != draft.before);
        let change = |(id, draft): (_, Draft)| BookChange {
            id,
            stock: (draft.before.0, draft.stock),
            price_cents: (draft.before.1.get(), draft.price.get()),
        };
        Changes { books: changed.map(change).collect(), entries: self.entries, repeats: self.repeats }
    }
}

/// True if a purchase wants the same book and quantity as an earlier entry.
fn is_repeated(earlier: &Entry, wish: &Purchase) -> bool {
    earlier.book == wish.book && earlier.quantity == Some(wish.quantity)
}

/// Repeats the first answer, if the request is the same.
fn replay(earlier: &Entry, wish: &Purchase) -> Result<Receipt, Fault> {
    if is_repeated(earlier, wish) {
        return Ok(earlier.receipt());
    }
    let quantity = earlier.quantity.unwrap_or_default();
    Err(Fault::KeyReused { number: earlier.number, book: earlier.book.get(), quantity })
}
