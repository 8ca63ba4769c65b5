//! The ledger's jobs, and the rules of one transaction: each job's effect on books and log, after all jobs before it.
//! The rules only decide; the store begins, commits and publishes.

use std::{
    collections::{BTreeMap, HashMap},
    time::{SystemTime, UNIX_EPOCH},
};

use commit::Pending;

use crate::{
    domain::{
        Actor, BookId, Entry, EntryKind, Hold, HoldEnd, HoldState, Holder, IdempotencyKey, NewBook, PriceChange,
        Purchase, Raised, Receipt, Reservation, Restocked, STOCK_MAX, Verdict,
    },
    fault::{Fault, Limit},
    money::Cents,
    store::{BookChange, BookFacts, BookPut, Changes, Facts},
};

/// Work for a transaction.
pub(super) enum Job {
    Purchase(Purchase),
    Hold(Hold),
    EndHold(HoldEnd),
    SetPrice(BookId, Cents, Actor),
    RestockBook(BookId, u32, Actor),
    /// Runs in separate transactions.
    Restock(u32, Actor),
    /// Runs in a transaction of its own.
    Write(Vec<Write>, Actor),
}

/// Addition or change of a whole book by an operator.
pub(crate) enum Write {
    /// Adds this book, if its id is free.
    Add(NewBook),
    /// Adds this book under the number above the highest instead of its own.
    AddNext(NewBook),
    /// Changes a book.
    Edit(BookId, Change),
    /// Adds this book or makes the book of its id equal to it, which may stay listed or not as it is.
    Put { book: NewBook, keeps_listed: bool },
}

/// Checked form of an [`Edit`](crate::domain::Edit).
pub(crate) struct Change {
    pub(crate) title: Option<String>,
    pub(crate) topic: Option<String>,
    pub(crate) price: Option<Cents>,
    pub(crate) listed: Option<bool>,
}

impl Change {
    fn of(&self, book: &NewBook) -> NewBook {
        NewBook {
            id: book.id,
            title: self.title.as_ref().unwrap_or(&book.title).clone(),
            topic: self.topic.as_ref().unwrap_or(&book.topic).clone(),
            stock: book.stock,
            price: self.price.unwrap_or(book.price),
            listed: self.listed.unwrap_or(book.listed),
        }
    }
}

/// Result of a [`Write`].
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The book before; `None` if it did not exist.
    pub(crate) before: Option<NewBook>,
    /// The book now; `None` if it does not exist, or if no id is above the highest.
    pub(crate) after: Option<NewBook>,
    /// Number of its last log entry; `None` if nothing changed.
    pub(crate) number: Option<i64>,
}

impl Job {
    /// The book that it is about, if it is about one.
    pub(super) const fn book(&self) -> Option<BookId> {
        match self {
            Self::Purchase(purchase) => Some(purchase.book),
            Self::Hold(hold) => Some(hold.book),
            Self::SetPrice(book, ..) | Self::RestockBook(book, ..) => Some(*book),
            Self::EndHold(..) | Self::Restock(..) | Self::Write(..) => None,
        }
    }

    /// True if it shares a transaction with other jobs.
    pub(super) const fn is_shared(&self) -> bool {
        !matches!(self, Self::Restock(..) | Self::Write(..))
    }
}

/// Decision on a job.
pub(super) enum Decision {
    Purchase(Receipt),
    Reservation(Reservation),
    Price(Option<PriceChange>),
    Raised(Option<Raised>),
    Restocked(Restocked),
    Written(Vec<Written>),
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
    /// Books that an operator added or changed, before and after.
    puts: BTreeMap<BookId, (Option<NewBook>, NewBook)>,
    entries: Vec<Entry>,
    /// Entries with these keys; for a reservation, the entry that began it.
    new_keys: HashMap<IdempotencyKey, usize>,
    /// Entries that end the reservations with these keys.
    new_ends: HashMap<IdempotencyKey, usize>,
    holders: Vec<Holder>,
    ended: Vec<Entry>,
    repeats: bool,
}

/// A book's state after the transaction.
struct Draft {
    before: BookFacts,
    stock: u32,
    price: Cents,
    listed: bool,
    held: u32,
}

impl Draft {
    const fn of(before: BookFacts) -> Self {
        let BookFacts { stock, price, listed, held } = before;
        Self { before, stock, price, listed, held }
    }
}

/// Largest stock of a book of which `held` copies are held: there is room for them when they are given back.
const fn room(held: u32) -> u32 {
    STOCK_MAX.saturating_sub(held)
}

/// Refuses copies that would not fit into a book beside those that are held.
fn check_room(field: &'static str, id: BookId, copies: u32, held: u32) -> Result<(), Fault> {
    if copies <= room(held) {
        return Ok(());
    }
    let want = format!("at most {}, because reservations hold {held} copies of book {id}", room(held));
    Err(Fault::invalid(field, copies, want))
}

impl<'f> Rules<'f> {
    pub(super) fn new(facts: &'f mut Facts) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let (drafts, puts) = (BTreeMap::new(), BTreeMap::new());
        let (new_keys, new_ends) = (HashMap::new(), HashMap::new());
        let (entries, holders, ended) = (Vec::new(), Vec::new(), Vec::new());
        let mut rules =
            Self { facts, time_ms, drafts, puts, entries, new_keys, new_ends, holders, ended, repeats: false };
        for reserved in rules.facts.take_overdue() {
            // Copies that do not fit into the book stay held.
            let _ = rules.end(&reserved, EntryKind::Released, true);
        }
        rules
    }

    fn draft(&mut self, id: BookId) -> Option<&mut Draft> {
        let facts = &*self.facts;
        self.drafts.entry(id).or_insert_with(|| facts.book(id).map(Draft::of)).as_mut()
    }

    fn log(&mut self, book: BookId, kind: EntryKind, before: Option<i64>, after: Option<i64>) -> &mut Entry {
        let number = self.facts.next_number(book);
        let (time_ms, quantity, key, actor, until_ms) = (self.time_ms, None, None, None, None);
        self.entries.push(Entry { number, time_ms, kind, book, quantity, before, after, key, actor, until_ms });
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }

    /// Logs a change by an operator; returns its number.
    fn log_by(&mut self, actor: &Actor, book: BookId, kind: EntryKind, (before, after): (i64, i64)) -> i64 {
        let entry = self.log(book, kind, Some(before), Some(after));
        entry.actor = Some(actor.clone());
        entry.number
    }

    /// Decides a purchase, or an operator's change of one stock or price.
    pub(super) fn decide(&mut self, job: &Job) -> Option<JobResult> {
        match job {
            Job::Purchase(purchase) => Some(self.purchase(purchase).map(Decision::Purchase)),
            Job::Hold(hold) => Some(self.hold(hold).map(Decision::Reservation)),
            Job::EndHold(end) => Some(self.end_hold(end).map(Decision::Reservation)),
            Job::SetPrice(book, price, actor) => Some(Ok(Decision::Price(self.set_price(*book, *price, actor)))),
            Job::RestockBook(book, amount, actor) => {
                Some(self.restock_book(*book, *amount, actor).map(Decision::Raised))
            }
            Job::Restock(..) | Job::Write(..) => None,
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
        let draft = self.draft(wish.book).filter(|draft| draft.listed);
        if let Some((draft, agreed)) = draft.as_ref().zip(wish.agreed)
            && draft.price != agreed
        {
            return Err(Fault::PriceChanged(draft.price));
        }
        let stock = draft.map(|draft| {
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

    /// Holds all copies or none. A refusal is not logged, so that the same key may try again.
    fn hold(&mut self, wish: &Hold) -> Result<Reservation, Fault> {
        if let Some(earlier) = self.with_key(&wish.key) {
            self.check_end(&earlier)?;
            let is_repeated = earlier.kind == EntryKind::Reserved
                && (earlier.book, earlier.quantity) == (wish.book, Some(wish.quantity));
            return if is_repeated { self.repeat(&earlier) } else { Err(key_reused(&earlier)) };
        }
        let before = self.draft(wish.book).filter(|draft| draft.listed).map(|draft| draft.stock);
        let refused = match before {
            None => Some(HoldState::NoSuchBook),
            Some(0) => Some(HoldState::SoldOut),
            Some(before) => (before < wish.quantity).then_some(HoldState::TooFew),
        };
        if let Some(state) = refused {
            let held = Some((wish.book, wish.quantity, 0));
            return Ok(Reservation { stock_left: before, held, ..self.without(state) });
        }
        if !self.facts.take_hold(wish.holder) {
            return Err(Fault::Limit { limit: Limit::Reservations, at: self.facts.holds_max() });
        }
        let before = before.unwrap_or_default();
        let after = before - wish.quantity;
        if let Some(draft) = self.draft(wish.book) {
            (draft.stock, draft.held) = (after, draft.held.saturating_add(wish.quantity));
        }
        let now_ms = self.facts.holds_ms();
        let entry = self.log(wish.book, EntryKind::Reserved, Some(before.into()), Some(after.into()));
        (entry.quantity, entry.key) = (Some(wish.quantity), Some(wish.key));
        entry.until_ms = Some(now_ms.saturating_add(i64::from(wish.seconds).saturating_mul(1000)));
        let entry = entry.clone();
        self.new_keys.insert(wish.key, self.entries.len() - 1);
        self.holders.push(wish.holder);
        Ok(Reservation { replayed: false, ..self.state_of(&entry, None) })
    }

    /// Sells the copies of a reservation or gives them back, if they are held.
    fn end_hold(&mut self, wish: &HoldEnd) -> Result<Reservation, Fault> {
        let reserved = self.with_key(&wish.key).filter(|earlier| earlier.kind == EntryKind::Reserved);
        let Some(reserved) = reserved else { return Ok(self.without(HoldState::NoSuchReservation)) };
        self.check_end(&reserved)?;
        if self.end_of(&wish.key).is_some() || reserved.until_ms <= Some(self.facts.holds_ms()) {
            return self.repeat(&reserved);
        }
        if wish.confirms && self.draft(reserved.book).is_none() {
            // Another program removed it, and its price with it.
            let held = self.state_of(&reserved, None).held;
            return Ok(Reservation { held, ..self.without(HoldState::NoSuchBook) });
        }
        let kind = if wish.confirms { EntryKind::Purchase } else { EntryKind::Released };
        let end = self.end(&reserved, kind, false)?;
        Ok(Reservation { replayed: false, ..self.state_of(&reserved, Some(&end)) })
    }

    /// Refuses a reservation whose end was lost, so that its copies are not given back or sold again.
    fn check_end(&self, reserved: &Entry) -> Result<(), Fault> {
        let is_lost = reserved.key.is_some_and(|key| self.facts.has_lost_end(&key));
        if is_lost { Err(Fault::LostEnd { number: reserved.number }) } else { Ok(()) }
    }

    /// The state that earlier requests, or time, led to.
    fn repeat(&mut self, reserved: &Entry) -> Result<Reservation, Fault> {
        let end = reserved.key.and_then(|key| self.end_of(&key));
        if end.is_none() && reserved.until_ms <= Some(self.facts.holds_ms()) {
            let end = self.end(reserved, EntryKind::Released, true)?;
            return Ok(self.state_of(reserved, Some(&end)));
        }
        self.repeats = true;
        Ok(self.state_of(reserved, end.as_ref()))
    }

    /// Logs the end of a reservation, which sells its copies or gives them back, perhaps because its time is over. Fails if
    /// another program raised the stock so far that they do not fit.
    fn end(&mut self, reserved: &Entry, kind: EntryKind, is_over: bool) -> Result<Entry, Fault> {
        let (book, quantity) = (reserved.book, reserved.quantity.unwrap_or_default());
        let mut stock = None;
        if let Some(draft) = self.draft(book) {
            let before = draft.stock;
            if kind == EntryKind::Released {
                let after = before.checked_add(quantity).filter(|copies| *copies <= STOCK_MAX);
                draft.stock = after.ok_or(Fault::NoRoom { book: book.get(), stock: before, copies: quantity })?;
            }
            draft.held = draft.held.saturating_sub(quantity);
            stock = Some((before, draft.stock));
        }
        let (before, after) = (stock.map(|stock| stock.0.into()), stock.map(|stock| stock.1.into()));
        let entry = self.log(reserved.book, kind, before, after);
        (entry.quantity, entry.key) = (reserved.quantity, reserved.key);
        entry.until_ms = reserved.until_ms.filter(|_| is_over);
        let entry = entry.clone();
        self.ended.push(reserved.clone());
        self.new_ends.extend(reserved.key.map(|key| (key, self.entries.len() - 1)));
        Ok(entry)
    }

    /// The first entry with exactly this key.
    fn with_key(&self, key: &IdempotencyKey) -> Option<Entry> {
        let new = self.new_keys.get(key).map(|index| &self.entries[*index]);
        new.or_else(|| self.facts.with_key(key)).cloned()
    }

    /// The entry that ended the reservation with this key.
    fn end_of(&self, key: &IdempotencyKey) -> Option<Entry> {
        let new = self.new_ends.get(key).map(|index| &self.entries[*index]);
        new.or_else(|| self.facts.end(key)).cloned()
    }

    fn state_of(&self, reserved: &Entry, end: Option<&Entry>) -> Reservation {
        let until_ms = reserved.until_ms.unwrap_or_default();
        let state = match end {
            None => HoldState::Held,
            Some(end) if end.kind == EntryKind::Purchase => HoldState::Bought,
            Some(end) if end.until_ms.is_some() => HoldState::Expired,
            Some(_) => HoldState::Released,
        };
        let last = end.unwrap_or(reserved);
        Reservation {
            held: Some((reserved.book, reserved.quantity.unwrap_or_default(), until_ms)),
            number: Some(last.number),
            stock_left: last.stock_left(),
            replayed: true,
            ..self.without(state)
        }
    }

    /// The answer to a request that changed nothing.
    fn without(&self, state: HoldState) -> Reservation {
        let now_ms = self.facts.holds_ms();
        Reservation { state, held: None, number: None, stock_left: None, replayed: false, now_ms }
    }

    /// Sets a price; `None` if the book does not exist.
    fn set_price(&mut self, id: BookId, price: Cents, actor: &Actor) -> Option<PriceChange> {
        let draft = self.draft(id)?;
        let before = draft.price;
        draft.price = price;
        let number = self.log_by(actor, id, EntryKind::Price, (before.get(), price.get()));
        Some(PriceChange { number, before, after: price })
    }

    /// Raises a book's stock; `None` if the book does not exist.
    fn restock_book(&mut self, id: BookId, amount: u32, actor: &Actor) -> Result<Option<Raised>, Fault> {
        if let Some(draft) = self.draft(id) {
            check_room("amount", id, amount, draft.held)?;
        }
        Ok(self.raise(id, amount, actor))
    }

    /// Raises a book's stock to `amount`, or as far as the held copies leave room.
    fn raise(&mut self, id: BookId, amount: u32, actor: &Actor) -> Option<Raised> {
        let draft = self.draft(id)?;
        let before = draft.stock;
        let after = before.max(amount.min(room(draft.held)));
        draft.stock = after;
        let number =
            (after > before).then(|| self.log_by(actor, id, EntryKind::Restock, (before.into(), after.into())));
        Some(Raised { number, before, after })
    }

    /// Raises the wanted books with fewer copies than `amount`; returns their number, and where to continue if there
    /// may be more.
    pub(super) fn raise_below(&mut self, amount: u32, actor: &Actor) -> (usize, Option<BookId>) {
        let (books, after) = self.facts.below();
        let raised = books.into_iter().filter_map(|id| self.raise(id, amount, actor)?.number).count();
        (raised, after)
    }

    /// Carries out a write of a whole book.
    pub(super) fn write(&mut self, write: &Write, actor: &Actor) -> Result<Written, Fault> {
        let (before, after) = match write {
            Write::Add(book) => {
                let before = self.current(book.id);
                let after = before.clone().unwrap_or_else(|| book.clone());
                (before, after)
            }
            Write::AddNext(book) => {
                let drafted = self.puts.last_key_value().map(|(id, _)| *id);
                let highest = self.facts.highest().max(drafted);
                let Some(id) = highest.map_or(BookId::new(1), BookId::next) else { return Ok(Written::default()) };
                (None, NewBook { id, ..book.clone() })
            }
            Write::Edit(id, change) => {
                let Some(before) = self.current(*id) else { return Ok(Written::default()) };
                let after = change.of(&before);
                (Some(before), after)
            }
            Write::Put { book, keeps_listed } => {
                let before = self.current(book.id);
                let listed = before.as_ref().filter(|_| *keeps_listed).map_or(book.listed, |before| before.listed);
                (before, NewBook { listed, ..book.clone() })
            }
        };
        if before.as_ref().is_none_or(|before| before.stock != after.stock) {
            check_room("stock", after.id, after.stock, self.facts.held(after.id))?;
        }
        let number = self.log_difference(before.as_ref(), &after, actor);
        if number.is_some() {
            let first = self.puts.remove(&after.id).map_or_else(|| before.clone(), |(first, _)| first);
            self.puts.insert(after.id, (first, after.clone()));
        }
        Ok(Written { before, after: Some(after), number })
    }

    /// A book after the writes so far.
    fn current(&self, id: BookId) -> Option<NewBook> {
        self.puts.get(&id).map(|(_, after)| after).or_else(|| self.facts.whole(id)).cloned()
    }

    /// Logs the differences of a book; returns the last number, if there are any.
    fn log_difference(&mut self, before: Option<&NewBook>, after: &NewBook, actor: &Actor) -> Option<i64> {
        let id = after.id;
        let mut last = None;
        let was = before.cloned().unwrap_or_else(|| NewBook { stock: 0, listed: true, ..after.clone() });
        if before.is_none() {
            last = Some(self.log_by(actor, id, EntryKind::Added, (0, after.stock.into())));
        } else if was.stock != after.stock {
            last = Some(self.log_by(actor, id, EntryKind::Adjusted, (was.stock.into(), after.stock.into())));
        }
        if was.price != after.price {
            last = Some(self.log_by(actor, id, EntryKind::Price, (was.price.get(), after.price.get())));
        }
        if was.title != after.title || was.topic != after.topic {
            let entry = self.log(id, EntryKind::Edited, None, None);
            entry.actor = Some(actor.clone());
            last = Some(entry.number);
        }
        if was.listed != after.listed {
            let kind = if after.listed { EntryKind::Listed } else { EntryKind::Delisted };
            last = Some(self.log_by(actor, id, kind, (was.listed.into(), after.listed.into())));
        }
        last
    }

    /// The decided changes.
    pub(super) fn into_changes(self) -> Changes {
        let books = self.drafts.into_iter().filter_map(|(id, draft)| Some((id, draft?)));
        let change = |(id, Draft { before, stock, price, held, .. }): (_, Draft)| {
            let is_same = (stock, price, held) == (before.stock, before.price, before.held);
            let (stock, held) = ((before.stock, stock), (before.held, held));
            (!is_same).then_some(BookChange { id, stock, price_cents: (before.price.get(), price.get()), held })
        };
        let put = |(before, after): (_, NewBook)| BookPut { held: self.facts.held(after.id), before, after };
        let puts = self.puts.into_values().map(put).collect();
        Changes {
            books: books.filter_map(change).collect(),
            puts,
            entries: self.entries,
            holders: self.holders,
            ended: self.ended,
            repeats: self.repeats,
        }
    }
}

/// True if an earlier entry is of a purchase of the same book and quantity.
fn is_repeated(earlier: &Entry, wish: &Purchase) -> bool {
    earlier.kind != EntryKind::Reserved && earlier.book == wish.book && earlier.quantity == Some(wish.quantity)
}

/// Repeats the first answer, if the request is the same.
fn replay(earlier: &Entry, wish: &Purchase) -> Result<Receipt, Fault> {
    if is_repeated(earlier, wish) {
        return Ok(earlier.receipt());
    }
    Err(key_reused(earlier))
}

fn key_reused(earlier: &Entry) -> Fault {
    let quantity = earlier.quantity.unwrap_or_default();
    Fault::KeyReused { number: earlier.number, book: earlier.book.get(), quantity }
}
