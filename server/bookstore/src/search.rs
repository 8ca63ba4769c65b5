//! Searches: a topic at once, by pages or as a stream, and the topics themselves.

use std::{ops::Bound, sync::Arc};

use hosting::{Client, Share};

use crate::{
    bookstore::{Bookstore, Paged},
    catalogue::{self, Book, Books},
    domain::BookId,
    fault::{Fault, Limit},
    nearest::Nearest,
    settings::Reads,
};

/// Smallest encoded book, so that a query need not fetch more books than can fit.
const BOOK_BYTES_MIN: usize = 8;

/// Default number of nearest topics.
const NEAREST: usize = 5;

/// A topic and its number of books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its text.
    pub name: Arc<str>,
    /// At least one.
    pub books: usize,
}

impl Bookstore {
    /// The books of exactly this topic, by id; those beyond a message's capacity may be left out.
    pub async fn search(&self, topic: &str) -> Result<Books, Fault> {
        self.topic_fits(topic)?;
        match self.inner.settings.reads {
            Reads::Memory => Ok(self.inner.shelf.load().topic(topic)),
            Reads::Database => {
                let most = self.message_bytes() / BOOK_BYTES_MIN + 1;
                self.inner.store.books(Some(topic.to_owned()), None, most).await
            }
        }
    }

    /// As [`Bookstore::search`], without waiting; `None` if it would have to wait.
    pub fn search_now(&self, topic: &str) -> Option<Result<Books, Fault>> {
        let catalogue = self.catalogue()?;
        Some(self.topic_fits(topic).map(|()| catalogue.topic(topic)))
    }

    /// A page of the books of exactly this topic; a size of 0 is the largest page.
    pub async fn search_page(
        &self,
        topic: &str,
        after: Option<BookId>,
        size: usize,
    ) -> Result<Paged<Books, BookId>, Fault> {
        self.topic_fits(topic)?;
        let size = self.page_size(size)?;
        // One more, to detect the last page.
        let books = match self.inner.settings.reads {
            Reads::Memory => {
                let books = self.inner.shelf.load().topic(topic);
                catalogue::behind(&books, after).iter().take(size + 1).cloned().collect()
            }
            Reads::Database => self.inner.store.books(Some(topic.to_owned()), after, size + 1).await?,
        };
        let (items, more): (Books, _) = if books.len() > size { (books[..size].into(), true) } else { (books, false) };
        let next = items.last().filter(|_| more).map(|book| book.id());
        Ok(Paged { items, next })
    }

    /// All books of exactly this topic after `after`, as currently in memory, for this client to take `size` at a time.
    pub fn search_stream(
        &self,
        topic: &str,
        after: Option<BookId>,
        size: usize,
        client: Client,
    ) -> Result<Found, Fault> {
        self.topic_fits(topic)?;
        let size = self.page_size(size)?;
        let share = self.stream_share(client)?;
        let books = self.inner.shelf.load().topic(topic);
        let taken = books.len() - catalogue::behind(&books, after).len();
        Ok(Found { books, taken, size, _share: share })
    }

    /// A page of the topics with books, in byte order; a size of 0 is the largest page.
    pub fn topics(&self, after: Option<&str>, size: usize) -> Result<Paged<Vec<Topic>, Arc<str>>, Fault> {
        let size = self.page_size(size)?;
        let catalogue = self.inner.shelf.load();
        let mut topics = catalogue.topics(after.map_or(Bound::Unbounded, Bound::Excluded));
        let items: Vec<Topic> =
            topics.by_ref().take(size).map(|(name, books)| Topic { name: Arc::clone(name), books }).collect();
        let next = topics.next().and_then(|_| items.last()).map(|topic| Arc::clone(&topic.name));
        Ok(Paged { items, next })
    }

    /// The topics nearest to `text`, best first; a size of 0 is the default. Yields to other tasks meanwhile.
    pub async fn topics_near(&self, text: &str, size: usize) -> Result<Vec<Topic>, Fault> {
        self.topic_fits(text)?;
        let size = if size == 0 { NEAREST.min(self.page_size(0)?) } else { self.page_size(size)? };
        let catalogue = self.inner.shelf.load_full();
        let mut nearest = Nearest::new(text, size);
        // Topics with the text as prefix are found regardless of the work limit.
        let beginning = catalogue.topics(Bound::Included(text)).take_while(|(topic, _)| topic.starts_with(text));
        for (topic, _) in beginning.take(size) {
            nearest.look(topic);
        }
        for (topic, _) in catalogue.topics(Bound::Unbounded) {
            if nearest.is_spent() {
                break;
            }
            if nearest.look(topic) {
                tokio::task::yield_now().await;
            }
        }
        let topic = |name: Arc<str>| Topic { books: catalogue.topic(&name).len(), name };
        Ok(nearest.found().map(topic).collect())
    }

    /// Size limit of an answer.
    pub fn message_bytes(&self) -> usize {
        self.inner.settings.limits.message_bytes
    }

    /// Counts an answer that exceeds a message, and returns its error.
    pub fn answer_too_large(&self) -> Fault {
        self.inner.metrics.answer_refused();
        Fault::AnswerBytes { at: self.message_bytes() }
    }

    fn topic_fits(&self, topic: &str) -> Result<(), Fault> {
        self.within(Limit::TopicBytes, topic.len(), self.inner.settings.limits.topic_bytes)
    }
}

/// Result of a streamed search: books taken from first to last.
#[derive(Debug)]
pub struct Found {
    books: Books,
    taken: usize,
    size: usize,
    /// Its permit.
    _share: Share,
}

impl Found {
    /// True if the topic has no books at all, even before `after`.
    pub fn is_empty(&self) -> bool {
        self.books.is_empty()
    }

    /// The next books; empty at the end.
    pub fn next(&self) -> &[Arc<Book>] {
        &self.books[self.taken..self.books.len().min(self.taken + self.size)]
    }

    /// Skips the first `count` of [`Found::next`]; returns the id to continue after, if books are left.
    pub fn take(&mut self, count: usize) -> Option<BookId> {
        self.taken = self.books.len().min(self.taken + count);
        let last = self.books[..self.taken].last()?;
        (self.taken < self.books.len()).then(|| last.id())
    }
}
