//! Pages to browse: topics, a topic by key, search, and a book.

use std::{ops::Bound, sync::Arc};

use axum::{extract::State, http::StatusCode, response::Response};
use bookstore::{
    BookId, Fault,
    bookstore::Paged,
    catalogue::{Book, Books},
    search::Topic,
};
use hosting::Client;

use crate::{
    live::BOOKS_MAX,
    locale::Locale,
    request::{encoded, query},
    shop::Shop,
    views::{
        BookPage, BuyForm, Card, Cover, FrontPage, SearchPage, Shelf, SorryPage, Stock, TopicLine, TopicPage,
        TopicsPage, books, topic_path,
    },
    visit::Visit,
};

/// Shelves on the first page, and books on each.
const SHELVES: usize = 12;
const SHELF_BOOKS: usize = 3;
/// Further topics on the first page.
const FRONT_TOPICS: usize = 60;
/// Number up to which the first page counts topics.
const COUNTED_TOPICS: usize = 1001;
/// Topics on a page of topics.
const PAGE_TOPICS: usize = 240;
/// Books on a page of a topic; all of them can be live.
const PAGE_BOOKS: usize = 48;
const _: () = assert!(PAGE_BOOKS <= BOOKS_MAX);
/// Other books of a topic beside one.
const BESIDE: usize = 6;
/// Topics and titles that a search shows.
const FOUND_TOPICS: usize = 12;
const FOUND_TITLES: usize = 24;
/// Titles that one search compares, some 10 ms of work.
const SCANNED_MAX: usize = 100_000;

pub(crate) async fn front(State(shop): State<Shop>, visit: Visit) -> Response {
    let page = match shop.topics_from(None, SHELVES + FRONT_TOPICS) {
        Ok(page) => page,
        Err(fault) => return shop.failed(&visit, &fault, None),
    };
    let (on_shelves, others) = page.items.split_at(page.items.len().min(SHELVES));
    let mut shelves = Vec::with_capacity(on_shelves.len());
    for topic in on_shelves {
        let first = match shop.topic_books(&topic.name, None, SHELF_BOOKS).await {
            Ok(first) => first,
            Err(fault) => return shop.failed(&visit, &fault, None),
        };
        let cards = first.iter().map(|book| Card::of(book, visit.locale)).collect();
        shelves.push(Shelf { topic: TopicLine::of(topic, visit.locale), cards });
    }
    let (count, locale) = (page.items.len(), visit.locale);
    let topics = match page.next.as_ref().map_or(count, |_| shop.count_topics()) {
        1 => "1 topic".to_owned(),
        COUNTED_TOPICS => format!("over {} topics", locale.count(COUNTED_TOPICS as u64 - 1)),
        count => format!("{} topics", locale.count(count as u64)),
    };
    let front = FrontPage {
        frame: shop.frame(""),
        books: books(shop.store().books() as u64, locale),
        topics,
        shelves,
        others: others.iter().map(|topic| TopicLine::of(topic, locale)).collect(),
        more: page.next.map(|last| topics_path(&last)),
    };
    visit.page(StatusCode::OK, &front)
}

pub(crate) async fn topics(State(shop): State<Shop>, visit: Visit) -> Response {
    let after = query(&visit.uri, "after");
    let page = match shop.topics_from(after.as_deref(), PAGE_TOPICS) {
        Ok(page) => page,
        Err(fault) => return shop.failed(&visit, &fault, None),
    };
    let topics = TopicsPage {
        frame: shop.frame(""),
        topics: page.items.iter().map(|topic| TopicLine::of(topic, visit.locale)).collect(),
        is_first: after.is_none(),
        next: page.next.map(|last| topics_path(&last)),
    };
    visit.page(StatusCode::OK, &topics)
}

fn topics_path(after: &str) -> String {
    format!("/shop/topics?after={}", encoded(after))
}

/// A part of a topic.
struct Part {
    books: Vec<Arc<Book>>,
    /// Number of the topic's books before the part, and of all; `None` without a catalogue in memory.
    place: Option<(usize, usize)>,
    is_last: bool,
}

impl Part {
    /// The part of `books` that begins after a book, or ends before one.
    fn of(books: &Books, after: Option<BookId>, before: Option<BookId>) -> Self {
        let start = match (after, before) {
            (Some(after), _) => books.partition_point(|book| book.id() <= after),
            (None, Some(before)) => books.partition_point(|book| book.id() < before).saturating_sub(PAGE_BOOKS),
            (None, None) => 0,
        };
        let end = books.len().min(start + PAGE_BOOKS);
        Self { books: books[start..end].to_vec(), place: Some((start, books.len())), is_last: end == books.len() }
    }
}

pub(crate) async fn topic(State(shop): State<Shop>, visit: Visit) -> Response {
    let name = query(&visit.uri, "name").unwrap_or_default();
    let id = |field| query(&visit.uri, field).and_then(|text| BookId::parse(&text).ok());
    let part = match shop.store().search_now(&name) {
        Some(found) => found.map(|books| Part::of(&books, id("after"), id("before"))),
        None => shop.store().search_page(&name, id("after"), PAGE_BOOKS).await.map(|page| Part {
            books: page.items.to_vec(),
            place: None,
            is_last: page.next.is_none(),
        }),
    };
    let part = match part {
        Ok(part) => part,
        Err(fault) => return shop.failed(&visit, &fault, None),
    };
    if part.books.is_empty() {
        return shop.no_such_topic(&visit, &name).await;
    }
    let (locale, path) = (visit.locale, topic_path(&name));
    let (start, count) = part.place.unwrap_or((0, part.books.len()));
    let is_first = part.place.map_or_else(|| id("after").is_none(), |(start, _)| start == 0);
    let ends = [part.books.first(), part.books.last()].map(|book| book.map_or(0, |book| book.id().get()));
    let numbers = (locale.count(start as u64 + 1), locale.count((start + part.books.len()) as u64));
    let page = TopicPage {
        frame: shop.frame(""),
        books: books(count as u64, locale),
        range: (part.place.is_some() && count > part.books.len()).then(|| format!("{} to {}", numbers.0, numbers.1)),
        cards: part.books.iter().map(|book| Card::of(book, locale)).collect(),
        first: (!is_first).then(|| path.clone()),
        previous: (start > 0).then(|| format!("{path}&before={}", ends[0])),
        next: (!part.is_last).then(|| format!("{path}&after={}", ends[1])),
        name,
    };
    visit.page(StatusCode::OK, &page)
}

pub(crate) async fn search(State(shop): State<Shop>, visit: Visit) -> Response {
    let typed = query(&visit.uri, "q").unwrap_or_default();
    let (typed, locale) = (typed.trim(), visit.locale);
    if typed.is_empty() {
        let (topics, titles) = (Vec::new(), Vec::new());
        return visit
            .page(StatusCode::OK, &SearchPage { frame: shop.frame(""), number: None, topics, titles, remark: None });
    }
    let number = match BookId::parse(typed) {
        Ok(id) => shop.store().lookup(id).await.ok().flatten(),
        Err(_) => None,
    };
    let topics = shop.topics_near(typed).await;
    let (titles, remark) = shop.titles_with(typed, visit.client()).await;
    let page = SearchPage {
        frame: shop.frame(typed),
        number: number.map(|book| Card::of(&book, locale)),
        topics: topics.iter().map(|topic| TopicLine::of(topic, locale)).collect(),
        titles: titles.iter().map(|book| Card::of(book, locale)).collect(),
        remark,
    };
    visit.page(StatusCode::OK, &page)
}

pub(crate) async fn book(State(shop): State<Shop>, visit: Visit) -> Response {
    let id = query(&visit.uri, "id").unwrap_or_default();
    let Ok(id) = BookId::parse(&id) else { return shop.no_such_book(&visit, &id) };
    let book = match shop.store().lookup(id).await {
        Ok(Some(book)) => book,
        Ok(None) => return shop.no_such_book(&visit, &id.to_string()),
        Err(fault) => return shop.failed(&visit, &fault, None),
    };
    let more = shop.beside(&book, visit.locale, |_| true).await;
    let page = BookPage {
        frame: shop.frame(""),
        cover: Cover::of(&book),
        price: visit.locale.price(book.price()),
        stock: Stock::new(book.stock(), visit.locale),
        form: BuyForm::new(&book, "Buy for", visit.locale),
        topic: topic_path(book.topic()),
        more,
        book,
    };
    visit.page(StatusCode::OK, &page)
}

impl Shop {
    /// A page of topics; a smaller one if the server's limit on pages is lower.
    fn topics_from(&self, after: Option<&str>, count: usize) -> Result<Paged<Vec<Topic>, Arc<str>>, Fault> {
        self.store().topics(after, count).or_else(|_| self.store().topics(after, 0))
    }

    fn count_topics(&self) -> usize {
        let counted = |page: Paged<Vec<Topic>, _>| page.items.len();
        match self.store().catalogue() {
            Some(catalogue) => catalogue.topics(Bound::Unbounded).take(COUNTED_TOPICS).count(),
            None => self.topics_from(None, COUNTED_TOPICS - 1).map_or(0, counted),
        }
    }

    async fn topics_near(&self, text: &str) -> Vec<Topic> {
        match self.store().topics_near(text, FOUND_TOPICS).await {
            Ok(topics) => topics,
            // A lower limit on pages; a text that is longer than a topic may be has none.
            Err(_) => self.store().topics_near(text, 0).await.unwrap_or_default(),
        }
    }

    /// The first books of a topic after one.
    async fn topic_books(&self, name: &str, after: Option<BookId>, count: usize) -> Result<Vec<Arc<Book>>, Fault> {
        if let Some(found) = self.store().search_now(name) {
            return Ok(bookstore::catalogue::behind(&found?, after).iter().take(count).cloned().collect());
        }
        let page = self.store().search_page(name, after, count).await;
        match page {
            Ok(page) => Ok(page.items.to_vec()),
            Err(_) => self.store().search_page(name, after, 1).await.map(|page| page.items.to_vec()),
        }
    }

    /// Other books of a book's topic: those behind it, then those before it.
    pub(crate) async fn beside(&self, book: &Book, locale: Locale, wanted: impl Fn(&Book) -> bool) -> Vec<Card> {
        let mut found = self.topic_books(book.topic(), Some(book.id()), BESIDE * 4).await.unwrap_or_default();
        found.extend(self.topic_books(book.topic(), None, BESIDE * 4).await.unwrap_or_default());
        let mut cards: Vec<(BookId, Card)> = Vec::with_capacity(BESIDE);
        for other in found {
            let is_new = other.id() != book.id() && cards.iter().all(|(id, _)| *id != other.id());
            if is_new && cards.len() < BESIDE && wanted(&other) {
                cards.push((other.id(), Card::of(&other, locale)));
            }
        }
        cards.into_iter().map(|(_, card)| card).collect()
    }

    /// Books with every typed word in the title, and a remark if not all titles were compared.
    async fn titles_with(&self, typed: &str, client: Client) -> (Vec<Arc<Book>>, Option<String>) {
        let words: Vec<String> = typed.to_lowercase().split_whitespace().map(str::to_owned).collect();
        // A query of the database for each page would cost more than it finds.
        if typed.chars().count() < 2 || self.store().catalogue().is_none() {
            return (Vec::new(), None);
        }
        let Some(_share) = self.title_searches().take(client) else {
            return (
                Vec::new(),
                Some("The shop is busy, so titles were left out. Search again in a moment.".to_owned()),
            );
        };
        let (mut found, mut scanned, mut after) = (Vec::new(), 0, None);
        while let Ok(page) = self.store().list(after, 0).await {
            for book in &*page.items {
                let title = book.title().to_lowercase();
                if words.iter().all(|word| title.contains(word)) {
                    found.push(Arc::clone(book));
                    if found.len() == FOUND_TITLES {
                        return (found, Some("More titles may match. Add a word.".to_owned()));
                    }
                }
            }
            scanned += page.items.len();
            after = page.next;
            if after.is_none() {
                break;
            }
            if scanned >= SCANNED_MAX {
                return (found, Some("Only the books with the lowest numbers were searched by title.".to_owned()));
            }
            tokio::task::yield_now().await;
        }
        (found, None)
    }

    async fn no_such_topic(&self, visit: &Visit, name: &str) -> Response {
        let near = self.topics_near(name).await;
        let mut ways: Vec<(String, String)> =
            near.iter().map(|topic| (topic.name.to_string(), topic_path(&topic.name))).collect();
        let text = if ways.is_empty() { "No topic is near it either." } else { "These are near it:" };
        ways.push(("All topics".to_owned(), "/shop/topics".to_owned()));
        let page = SorryPage {
            frame: self.frame(""),
            kind: "no-topic",
            title: format!("No book is on “{name}”"),
            text: text.to_owned(),
            book: None,
            ways,
            instead: Vec::new(),
        };
        visit.page(StatusCode::NOT_FOUND, &page)
    }

    pub(crate) fn no_such_book(&self, visit: &Visit, id: &str) -> Response {
        let shown: String = id.chars().take(20).collect();
        let title = if shown.is_empty() { "No book was named".to_owned() } else { format!("There is no book {shown}") };
        let page = SorryPage {
            frame: self.frame(""),
            kind: "no-book",
            title,
            text: "It may have left the catalogue, or the number has a slip in it. The search above finds others."
                .to_owned(),
            book: None,
            ways: vec![("The shop".to_owned(), "/".to_owned()), ("All topics".to_owned(), "/shop/topics".to_owned())],
            instead: Vec::new(),
        };
        visit.page(StatusCode::NOT_FOUND, &page)
    }
}
