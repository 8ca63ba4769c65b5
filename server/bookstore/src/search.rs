//! Searches: a topic at once, by pages or as a stream, and the topics themselves.

use std::{ops::Bound, sync::Arc};

use hosting::{Client, Share};

use crate::{
    bookstore::{Bookstore, Paged},
    catalogue::{self, Book, Books},
    domain::BookId,
    fault::{Fault, Limit},
    settings::Reads,
    store::Which,
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
                self.inner.store.books(Which::Topic(topic.to_owned()), None, most).await
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
            Reads::Database => self.inner.store.books(Which::Topic(topic.to_owned()), after, size + 1).await?,
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
    ) -> Result<TopicBooks, Fault> {
        self.topic_fits(topic)?;
        let size = self.page_size(size)?;
        let share = self.stream_share(client)?;
        let books = self.inner.shelf.load().topic(topic);
        let taken = books.len() - catalogue::behind(&books, after).len();
        Ok(TopicBooks { books, taken, size, _share: share })
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
        Ok(nearest.into_topics().map(topic).collect())
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
pub struct TopicBooks {
    books: Books,
    taken: usize,
    size: usize,
    /// Its permit.
    _share: Share,
}

impl TopicBooks {
    /// True if the topic has no books at all, even before `after`.
    pub fn is_empty(&self) -> bool {
        self.books.is_empty()
    }

    /// The next books; empty at the end.
    pub fn next(&self) -> &[Arc<Book>] {
        &self.books[self.taken..self.books.len().min(self.taken + self.size)]
    }

    /// Skips the first `count` of [`TopicBooks::next`]; returns the id to continue after, if books are left.
    pub fn take(&mut self, count: usize) -> Option<BookId> {
        self.taken = self.books.len().min(self.taken + count);
        let last = self.books[..self.taken].last()?;
        (self.taken < self.books.len()).then(|| last.id())
    }
}

/// Work limit for one text, in pairs of letters compared: about 10 ms, or 50,000 topics of average length.
const WORK_MAX: usize = 8 << 20;
/// Work after which the caller should yield.
const WORK_AT_ONCE: usize = 1 << 17;
/// Fixed cost of a topic.
const WORK_A_TOPIC: usize = 32;
/// Greatest number of differing letters.
const DISTANCE_MAX: usize = 3;

/// Collects the topics nearest to a text, within the work limit.
#[derive(Debug)]
struct Nearest {
    text: String,
    letters: usize,
    most: usize,
    /// In ascending order.
    best: Vec<(usize, Arc<str>)>,
    work: usize,
    turn: usize,
}

impl Nearest {
    /// Collects up to `most`.
    fn new(text: &str, most: usize) -> Self {
        let text = text.trim().to_lowercase();
        Self { letters: text.chars().count(), text, most, best: Vec::new(), work: 0, turn: 0 }
    }

    /// True if the work limit is reached.
    fn is_spent(&self) -> bool {
        self.work >= WORK_MAX
    }

    /// Adds a topic if it is near; true if the caller should yield.
    fn look(&mut self, topic: &Arc<str>) -> bool {
        let before = self.work;
        let rank = self.rank(topic);
        self.turn += self.work - before;
        if let Some(rank) = rank {
            let index = self.best.partition_point(|(other, name)| (*other, name) < (rank, topic));
            let known = self.best.get(index).is_some_and(|(_, name)| name == topic);
            if index < self.most && !known {
                self.best.insert(index, (rank, Arc::clone(topic)));
                self.best.truncate(self.most);
            }
        }
        let pause = self.turn >= WORK_AT_ONCE;
        if pause {
            self.turn = 0;
        }
        pause
    }

    /// The topics, best first.
    fn into_topics(self) -> impl Iterator<Item = Arc<str>> {
        self.best.into_iter().map(|(_, topic)| topic)
    }

    /// 0 for the text itself, 1 if the topic begins with it, 2 if one of its words does or a letter differs; 3 if a
    /// letter of one of its words differs.
    fn rank(&mut self, topic: &str) -> Option<usize> {
        let topic = topic.to_lowercase();
        self.work += WORK_A_TOPIC + topic.len();
        if topic == self.text {
            return Some(0);
        }
        if topic.starts_with(&self.text) {
            return Some(1);
        }
        if topic.split_whitespace().any(|word| word.starts_with(&self.text)) {
            return Some(2);
        }
        let whole = self.slips(&topic).map(|letters| letters + 1);
        topic.split_whitespace().filter_map(|word| self.slips(word).map(|letters| letters + 2)).chain(whole).min()
    }

    /// Number of letters in which a topic or one of its words differs; `None` if too many.
    fn slips(&mut self, part: &str) -> Option<usize> {
        let letters = part.chars().count();
        let allowed = DISTANCE_MAX.min(self.letters / 3);
        if letters.abs_diff(self.letters) > allowed {
            return None;
        }
        self.work += letters * self.letters;
        Some(strsim::osa_distance(part, &self.text)).filter(|distance| *distance <= allowed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Nearest;

    fn nearest(text: &str, most: usize) -> Vec<String> {
        let topics = ["cooking", "college life", "Collage", "databases", "distributed systems", "poetry"];
        let mut nearest = Nearest::new(text, most);
        for topic in topics.map(Arc::from) {
            nearest.look(&topic);
            nearest.look(&topic);
        }
        nearest.into_topics().map(|topic| topic.to_string()).collect()
    }

    #[test]
    fn finds_topics_by_prefix_by_word_and_in_spite_of_case_and_typing_errors() {
        assert_eq!(nearest("College Life", 5), ["college life"]);
        assert_eq!(nearest("coll", 5), ["Collage", "college life"]);
        assert_eq!(nearest("systems", 5), ["distributed systems"]);
        assert_eq!(nearest("databsaes", 5), ["databases"]);
        assert_eq!(nearest("sistems", 5), ["distributed systems"]);
        assert_eq!(nearest("colege", 5), ["Collage", "college life"]);
        assert_eq!(nearest("college", 5), ["college life", "Collage"]);
        assert_eq!(nearest("co", 2), ["Collage", "college life"]);
        assert_eq!(nearest("astronomy", 5), [""; 0]);
    }

    #[test]
    fn ends_at_the_work_limit() {
        let mut nearest = Nearest::new(&"a".repeat(256), 5);
        let topics: Vec<Arc<str>> =
            (0..100_000).map(|number| format!("{}{number:06}", "b".repeat(250)).into()).collect();
        let (mut looked, mut pauses) = (0, 0);
        for topic in &topics {
            if nearest.is_spent() {
                break;
            }
            looked += 1;
            pauses += u32::from(nearest.look(topic));
        }
        assert!(looked < 1000 && pauses > 10, "{looked} {pauses}");
    }
}
