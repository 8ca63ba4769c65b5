//! The readers' catalogue: memory that the ledger publishes after each commit.
//!
//! Readers are lock-free: they load a pointer to an immutable [`Catalogue`] and read two atomics of a book. Stock and
//! price change in place; only a book that is added, removed or renamed makes a new [`Catalogue`], which shares all but
//! the changed path with the old one.

use std::{
    collections::{HashMap, HashSet},
    iter,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;
use rustc_hash::FxBuildHasher;

use crate::{
    domain::{BookId, NewBook},
    money::Cents,
    shared_map::SharedMap,
};

/// A shared book. Only its stock and price change; a book that is renamed, delisted or listed again is a new value.
#[derive(Debug)]
pub struct Book {
    id: BookId,
    stock: AtomicU32,
    price_cents: AtomicI64,
    held: AtomicU32,
    listed: bool,
    title: Box<str>,
    topic: Arc<str>,
}

impl Book {
    /// Creates a book; `topic` is its topic's text, shared among the topic's books.
    pub(crate) fn new(book: NewBook, topic: Arc<str>) -> Self {
        let NewBook { id, title, stock, price, listed, .. } = book;
        let (stock, price_cents) = (AtomicU32::new(stock), AtomicI64::new(price.get()));
        Self { id, stock, price_cents, held: AtomicU32::new(0), listed, title: title.into(), topic }
    }

    /// Its number.
    pub fn id(&self) -> BookId {
        self.id
    }

    /// Its title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Copies left as of the last commit.
    pub fn stock(&self) -> u32 {
        self.stock.load(Relaxed)
    }

    /// The price as of the last commit.
    pub fn price(&self) -> Cents {
        Cents::new(self.price_cents.load(Relaxed)).unwrap_or_default()
    }

    /// Copies that reservations hold, beside the stock.
    pub fn held(&self) -> u32 {
        self.held.load(Relaxed)
    }

    /// False for a book that only operators see.
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Publishes stock and price after a commit. Relaxed ordering suffices: each value is valid by itself, and callers
    /// learn of a commit through a channel, which orders what came before.
    pub(crate) fn publish(&self, stock: u32, price: Cents) {
        self.stock.store(stock, Relaxed);
        self.price_cents.store(price.get(), Relaxed);
    }

    /// Publishes the copies that reservations hold.
    pub(crate) fn publish_held(&self, held: u32) {
        self.held.store(held, Relaxed);
    }
}

impl From<NewBook> for Book {
    fn from(book: NewBook) -> Self {
        let topic = Arc::from(&*book.topic);
        Self::new(book, topic)
    }
}

impl From<(NewBook, u32)> for Book {
    /// The book, with the copies that reservations hold.
    fn from((book, held): (NewBook, u32)) -> Self {
        let book = Self::from(book);
        book.publish_held(held);
        book
    }
}

impl From<&Book> for NewBook {
    fn from(book: &Book) -> Self {
        let (title, topic) = (book.title().to_owned(), book.topic().to_owned());
        Self { id: book.id, title, topic, stock: book.stock(), price: book.price(), listed: book.listed }
    }
}

/// Books by id.
pub type Books = Arc<[Arc<Book>]>;

/// The part of `books` with ids above `after`.
pub fn behind(books: &[Arc<Book>], after: Option<BookId>) -> &[Arc<Book>] {
    after.map_or(books, |after| &books[books.partition_point(|book| book.id <= after)..])
}

/// Hash index of books by id: two cache misses instead of an ordered tree's ten. Partitioned, so that a new book copies
/// one part and not a million entries.
#[derive(Clone, Debug)]
struct Index {
    parts: Vec<Arc<HashMap<BookId, Arc<Book>, FxBuildHasher>>>,
}

impl Index {
    /// Approximate entries of a new part.
    const PART: usize = 512;

    fn for_books(count: usize) -> Self {
        Self { parts: vec![Arc::default(); (count / Self::PART).next_power_of_two()] }
    }

    fn part(&self, id: BookId) -> usize {
        // The upper bits of a Fibonacci hash (Knuth, volume 3, 6.4); the inner maps use the lower ones.
        let hash = id.get().unsigned_abs().wrapping_mul(0x9E37_79B9) >> 16;
        hash as usize & (self.parts.len() - 1)
    }

    fn get(&self, id: BookId) -> Option<&Arc<Book>> {
        self.parts[self.part(id)].get(&id)
    }

    fn insert(&mut self, book: Arc<Book>) {
        let part = self.part(book.id);
        Arc::make_mut(&mut self.parts[part]).insert(book.id, book);
    }

    fn remove(&mut self, id: BookId) -> Option<Arc<Book>> {
        let part = self.part(id);
        Arc::make_mut(&mut self.parts[part]).remove(&id)
    }
}

/// A snapshot of all books. Shoppers' reads never meet a delisted one.
#[derive(Clone, Debug)]
pub struct Catalogue {
    by_id: Index,
    in_order: SharedMap<BookId, Arc<Book>>,
    by_topic: SharedMap<Arc<str>, Books>,
    delisted: SharedMap<BookId, Arc<Book>>,
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::from_ordered(Vec::new())
    }
}

impl Catalogue {
    /// Builds from books ordered by id.
    pub fn from_ordered(mut books: Vec<Arc<Book>>) -> Self {
        let delisted = books.extract_if(.., |book| !book.listed).map(|book| (book.id, book)).collect();
        let mut topics: HashMap<Arc<str>, Vec<Arc<Book>>> = HashMap::new();
        let mut by_id = Index::for_books(books.len());
        for book in &books {
            topics.entry(Arc::clone(&book.topic)).or_default().push(Arc::clone(book));
            by_id.insert(Arc::clone(book));
        }
        let in_order = books.into_iter().map(|book| (book.id, book)).collect();
        let mut topics: Vec<_> = topics.into_iter().map(|(topic, books)| (topic, Books::from(books))).collect();
        topics.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let (in_order, by_topic) = (SharedMap::from_ordered(in_order), SharedMap::from_ordered(topics));
        Self { by_id, in_order, by_topic, delisted: SharedMap::from_ordered(delisted) }
    }

    /// Number of books, without delisted ones.
    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    /// True if no book is listed.
    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// The listed book with this id.
    pub fn get(&self, id: BookId) -> Option<&Arc<Book>> {
        self.by_id.get(id)
    }

    /// The book with this id, listed or not.
    pub fn get_any(&self, id: BookId) -> Option<&Arc<Book>> {
        self.get(id).or_else(|| self.delisted.get(&id))
    }

    /// The highest id of all books.
    pub(crate) fn highest(&self) -> Option<BookId> {
        self.in_order.last().max(self.delisted.last()).copied()
    }

    /// The books of exactly this topic.
    pub fn topic(&self, topic: &str) -> Books {
        self.by_topic.get(topic).cloned().unwrap_or_default()
    }

    /// Listed books by id, above `after`.
    pub fn after(&self, after: Option<BookId>) -> impl Iterator<Item = &Arc<Book>> {
        let start = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        self.in_order.range(start).map(|(_, book)| book)
    }

    /// All books by id, above `after`.
    pub fn after_any(&self, after: Option<BookId>) -> impl Iterator<Item = &Arc<Book>> {
        let start = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut listed = self.in_order.range(start).map(|(_, book)| book).peekable();
        let mut delisted = self.delisted.range(start).map(|(_, book)| book).peekable();
        iter::from_fn(move || {
            let is_delisted_next = match (listed.peek(), delisted.peek()) {
                (Some(book), Some(other)) => other.id < book.id,
                (book, _) => book.is_none(),
            };
            if is_delisted_next { delisted.next() } else { listed.next() }
        })
    }

    /// Topics from `from` on in byte order, each with its number of books.
    pub fn topics(&self, from: Bound<&str>) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.by_topic.range(from).map(|(topic, books)| (topic, books.len()))
    }

    /// Adds, removes, edits, lists and delists books in one step, so that each topic is rebuilt only once.
    fn restructure(&mut self, changes: Vec<(BookId, Option<(NewBook, u32)>)>) {
        let mut topics: HashMap<Arc<str>, Vec<Arc<Book>>> = HashMap::new();
        let by_topic = &self.by_topic;
        let mut touch = |topic: &Arc<str>, book: Option<&Arc<Book>>| {
            let books = topics.entry(Arc::clone(topic));
            books
                .or_insert_with_key(|topic| by_topic.get(topic).map_or_else(Vec::new, |books| books.to_vec()))
                .extend(book.cloned());
        };
        let changed: HashSet<BookId> = changes.iter().map(|change| change.0).collect();
        for (id, state) in changes {
            if let Some(old) = self.by_id.remove(id) {
                self.in_order.remove(&id);
                touch(&old.topic, None);
            } else {
                self.delisted.remove(&id);
            }
            if let Some((new, held)) = state {
                if !new.listed {
                    self.delisted.insert(id, Arc::new(Book::from((new, held))));
                    continue;
                }
                // All books of a topic share its text.
                let known = by_topic.entry(&*new.topic).map(|(topic, _)| Arc::clone(topic));
                let topic = known.unwrap_or_else(|| Arc::from(&*new.topic));
                let book = Arc::new(Book::new(new, Arc::clone(&topic)));
                book.publish_held(held);
                touch(&topic, Some(&book));
                self.by_id.insert(Arc::clone(&book));
                self.in_order.insert(id, book);
            }
        }
        for (topic, mut books) in topics {
            books.retain(|book| {
                !changed.contains(&book.id) || self.by_id.get(book.id).is_some_and(|now| Arc::ptr_eq(now, book))
            });
            books.sort_unstable_by_key(|book| book.id);
            if books.is_empty() {
                self.by_topic.remove(&*topic);
            } else {
                self.by_topic.insert(topic, books.into());
            }
        }
    }
}

/// Holder of the current [`Catalogue`].
#[derive(Debug, Default)]
pub struct Shelf {
    current: ArcSwap<Catalogue>,
}

impl Shelf {
    /// The current catalogue. It shows later stock and prices, but no later added or removed books.
    pub fn load(&self) -> arc_swap::Guard<Arc<Catalogue>> {
        self.current.load()
    }

    /// Like [`Shelf::load`], for keeping long or across threads.
    pub fn load_full(&self) -> Arc<Catalogue> {
        self.current.load_full()
    }

    pub(crate) fn replace(&self, catalogue: Catalogue) {
        self.current.store(Arc::new(catalogue));
    }

    /// Applies the store's state of some books and of the copies held of them; `None` for a removed one. Only the ledger
    /// calls this, one thread at a time.
    pub(crate) fn apply(&self, changes: impl IntoIterator<Item = (BookId, Option<(NewBook, u32)>)>) {
        let current = self.current.load_full();
        let structural: Vec<_> = changes
            .into_iter()
            .filter_map(|(id, state)| match (current.get_any(id), state) {
                (Some(book), Some((new, held)))
                    if *book.title == *new.title && *book.topic == *new.topic && book.listed == new.listed =>
                {
                    book.publish(new.stock, new.price);
                    book.publish_held(held);
                    None
                }
                (None, None) => None,
                (_, state) => Some((id, state)),
            })
            .collect();
        if !structural.is_empty() {
            let mut catalogue = (*current).clone();
            catalogue.restructure(structural);
            self.replace(catalogue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Book, Catalogue, Shelf};
    use crate::{
        domain::{BookId, NewBook},
        money::Cents,
        sample,
    };
    use std::{ops::Bound, sync::Arc};

    fn shelf() -> Shelf {
        let shelf = Shelf::default();
        shelf.replace(Catalogue::from_ordered(sample::books().map(|book| Arc::new(Book::from(book))).collect()));
        shelf
    }

    fn ids(books: &[Arc<Book>]) -> Vec<i32> {
        books.iter().map(|book| book.id().get()).collect()
    }

    #[test]
    fn books_are_found_by_id_by_topic_and_in_order() {
        let shelf = shelf();
        let view = shelf.load();
        assert_eq!(view.get(BookId::new(53573).unwrap()).unwrap().title(), "Distributed Systems for Dummies");
        assert_eq!(ids(&view.topic("college life")), [12365, 12498]);
        assert_eq!(ids(&view.topic("college")), [0; 0]);
        let rest: Vec<_> = view.after(BookId::new(12498)).cloned().collect();
        assert_eq!(ids(&rest), [53477, 53573]);
    }

    #[test]
    fn a_view_keeps_its_books_and_shows_new_stock() {
        let shelf = shelf();
        let old = shelf.load();
        let mut book = sample::books().next().unwrap();
        book.stock = 7;
        let gone = BookId::new(12498).unwrap();
        shelf.apply([(book.id, Some((book.clone(), 0))), (gone, None)]);
        assert_eq!(old.get(book.id).unwrap().stock(), 7);
        assert!(old.get(gone).is_some() && shelf.load().get(gone).is_none());
        assert_eq!(ids(&shelf.load().topic("college life")), [12365]);
    }

    #[test]
    fn a_book_that_changes_topic_moves() {
        let shelf = shelf();
        let book = NewBook { topic: "cooking".into(), price: Cents::default(), ..sample::books().nth(1).unwrap() };
        shelf.apply([(book.id, Some((book, 0)))]);
        assert_eq!(ids(&shelf.load().topic("cooking")), [12498]);
        assert_eq!(ids(&shelf.load().topic("college life")), [12365]);
        assert_eq!(shelf.load().len(), 4);
    }

    #[test]
    fn a_delisted_book_is_only_found_by_operators_until_it_is_listed_again() {
        let shelf = shelf();
        let cooking = sample::books().nth(1).unwrap();
        let id = cooking.id;
        shelf.apply([(id, Some((NewBook { listed: false, ..cooking.clone() }, 0)))]);
        let view = shelf.load();
        assert!(view.get(id).is_none() && view.len() == 3 && view.get_any(id).is_some());
        assert_eq!(ids(&view.topic("college life")), [12365]);
        assert_eq!(view.after(None).count(), 3);
        let all: Vec<_> = view.after_any(None).map(|book| (book.id().get(), book.is_listed())).collect();
        assert_eq!(all, [(12365, true), (12498, false), (53477, true), (53573, true)]);
        assert_eq!(view.after_any(BookId::new(53477)).count(), 1);
        shelf.apply([(id, Some((NewBook { stock: 5, listed: false, ..cooking.clone() }, 0)))]);
        assert_eq!(view.get_any(id).unwrap().stock(), 5, "its stock changes in place");
        shelf.apply([(id, Some((cooking, 0)))]);
        assert_eq!((shelf.load().len(), ids(&shelf.load().topic("college life"))), (4, vec![12365, 12498]));
        assert_eq!(shelf.load().after_any(None).count(), 4, "it is there once");
    }

    #[test]
    fn the_highest_id_counts_delisted_books_and_restarts_keep_them_apart() {
        let books = sample::books().map(|book| NewBook { listed: book.id.get() < 50_000, ..book });
        let view = Catalogue::from_ordered(books.map(|book| Arc::new(Book::from(book))).collect());
        assert_eq!((view.len(), view.highest(), view.after_any(None).count()), (2, BookId::new(53573), 4));
        assert_eq!(Catalogue::default().highest(), None);
    }

    #[test]
    fn topics_are_listed_as_long_as_they_have_books() {
        let shelf = shelf();
        let topics = |from: Bound<&str>| -> Vec<(String, usize)> {
            shelf.load().topics(from).map(|(topic, books)| (topic.to_string(), books)).collect()
        };
        let (college, systems) = (("college life".to_owned(), 2), ("distributed systems".to_owned(), 2));
        assert_eq!(topics(Bound::Unbounded), [college.clone(), systems.clone()]);
        assert_eq!(topics(Bound::Excluded("college life")), std::slice::from_ref(&systems));
        let book = NewBook { topic: "cooking".into(), ..sample::books().nth(1).unwrap() };
        shelf.apply([(book.id, Some((book, 0))), (BookId::new(12365).unwrap(), None)]);
        assert_eq!(topics(Bound::Unbounded), [("cooking".to_owned(), 1), systems]);
    }
}
