//! The content of the pages, as types; each has its template in `templates`, which escapes everything.

use std::{sync::Arc, time::Duration};

use askama::Template;
use bookstore::{BookId, Cents, catalogue::Book, search::Topic};

use crate::{
    assets::Assets,
    keys::{FormKey, Remembered},
    locale::Locale,
    request::encoded,
};

/// Stock at or below which a page says how few are left.
const FEW: u32 = 5;

/// Number of palettes and of motifs of the covers in `style.css`.
const PALETTES: u32 = 10;
const MOTIFS: u32 = 8;

/// Parts of every page.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) assets: &'static Assets,
    /// Trouble of the store that shoppers should know of.
    pub(crate) notice: Option<String>,
    /// Text in the search field.
    pub(crate) query: String,
    pub(crate) version: &'static str,
}

/// Copies that are left.
#[derive(Clone, Debug)]
pub(crate) struct Stock {
    pub(crate) text: String,
    /// `in`, `low` or `out`.
    pub(crate) level: &'static str,
}

impl Stock {
    pub(crate) fn new(copies: u32, locale: Locale) -> Self {
        let (text, level) = match copies {
            0 => ("Sold out".to_owned(), "out"),
            1..=FEW => (format!("Only {copies} left"), "low"),
            _ => (format!("{} in stock", locale.count(copies)), "in"),
        };
        Self { text, level }
    }

    pub(crate) fn is_out(&self) -> bool {
        self.level == "out"
    }
}

/// The cover of a book: its number chooses colours and motif, so that a book always looks the same.
#[derive(Clone, Debug)]
pub(crate) struct Cover {
    pub(crate) book: Arc<Book>,
    pub(crate) palette: u32,
    pub(crate) motif: u32,
    /// Class for the length of the title.
    pub(crate) length: &'static str,
}

impl Cover {
    pub(crate) fn of(book: &Arc<Book>) -> Self {
        // Fibonacci hashing (Knuth, volume 3, 6.4), so that neighbours differ.
        let mixed = book.id().get().unsigned_abs().wrapping_mul(0x9E37_79B9) >> 12;
        let length = match book.title().chars().count() {
            0..=22 => "short",
            23..=48 => "medium",
            _ => "long",
        };
        Self { book: Arc::clone(book), palette: mixed % PALETTES, motif: mixed / PALETTES % MOTIFS, length }
    }
}

/// A book in a list.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    id: BookId,
    cover: Cover,
    price: String,
    stock: Stock,
}

impl Card {
    pub(crate) fn of(book: &Arc<Book>, locale: Locale) -> Self {
        let stock = Stock::new(book.stock(), locale);
        Self { id: book.id(), cover: Cover::of(book), price: locale.price(book.price()), stock }
    }
}

/// A topic in a list.
#[derive(Clone, Debug)]
pub(crate) struct TopicLine {
    name: Arc<str>,
    path: String,
    books: String,
}

impl TopicLine {
    pub(crate) fn of(topic: &Topic, locale: Locale) -> Self {
        Self { name: Arc::clone(&topic.name), path: topic_path(&topic.name), books: locale.count(topic.books as u64) }
    }
}

/// Path of a topic's page.
pub(crate) fn topic_path(name: &str) -> String {
    format!("/shop/topic?name={}", encoded(name))
}

/// `1 book`, `2 books`.
pub(crate) fn books(count: u64, locale: Locale) -> String {
    let noun = if count == 1 { "book" } else { "books" };
    format!("{} {noun}", locale.count(count))
}

/// A form that buys one copy.
#[derive(Clone, Debug)]
pub(crate) struct BuyForm {
    pub(crate) id: BookId,
    pub(crate) key: FormKey,
    /// Text of the button, without the price.
    pub(crate) label: &'static str,
    /// Empty for a button without a price.
    pub(crate) price: String,
    pub(crate) is_off: bool,
}

impl BuyForm {
    /// A form with a new key.
    pub(crate) fn new(book: &Book, label: &'static str, locale: Locale) -> Self {
        let (id, price) = (book.id(), book.price());
        let (key, is_off) = (FormKey::draw(price), book.stock() == 0);
        Self { id, key, label, price: locale.price(price), is_off }
    }
}

/// A few books of a topic.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    pub(crate) topic: TopicLine,
    pub(crate) cards: Vec<Card>,
}

/// `/`.
#[derive(Debug, Template)]
#[template(path = "front.html")]
pub(crate) struct FrontPage {
    pub(crate) frame: Frame,
    pub(crate) books: String,
    pub(crate) topics: String,
    pub(crate) shelves: Vec<Shelf>,
    /// Topics behind those of the shelves.
    pub(crate) others: Vec<TopicLine>,
    /// Path of the page with further topics.
    pub(crate) more: Option<String>,
}

/// `/shop/topics`.
#[derive(Debug, Template)]
#[template(path = "topics.html")]
pub(crate) struct TopicsPage {
    pub(crate) frame: Frame,
    pub(crate) topics: Vec<TopicLine>,
    /// True for the page that begins with the first topic.
    pub(crate) is_first: bool,
    pub(crate) next: Option<String>,
}

/// `/shop/topic`.
#[derive(Debug, Template)]
#[template(path = "topic.html")]
pub(crate) struct TopicPage {
    pub(crate) frame: Frame,
    pub(crate) name: String,
    pub(crate) books: String,
    /// `49 to 96`, if there are several pages.
    pub(crate) range: Option<String>,
    pub(crate) cards: Vec<Card>,
    pub(crate) first: Option<String>,
    pub(crate) previous: Option<String>,
    pub(crate) next: Option<String>,
}

/// `/shop/search`.
#[derive(Debug, Template)]
#[template(path = "search.html")]
pub(crate) struct SearchPage {
    pub(crate) frame: Frame,
    /// The book with the number that was typed.
    pub(crate) number: Option<Card>,
    pub(crate) topics: Vec<TopicLine>,
    pub(crate) titles: Vec<Card>,
    /// Reason for missing titles.
    pub(crate) remark: Option<String>,
}

impl SearchPage {
    fn is_empty(&self) -> bool {
        self.number.is_none() && self.topics.is_empty() && self.titles.is_empty()
    }
}

/// `/shop/book`.
#[derive(Debug, Template)]
#[template(path = "book.html")]
pub(crate) struct BookPage {
    pub(crate) frame: Frame,
    pub(crate) book: Arc<Book>,
    pub(crate) cover: Cover,
    pub(crate) price: String,
    pub(crate) stock: Stock,
    pub(crate) form: BuyForm,
    pub(crate) topic: String,
    pub(crate) more: Vec<Card>,
}

/// A purchase on a receipt or in the list.
#[derive(Clone, Debug)]
pub(crate) struct Sale {
    pub(crate) number: i64,
    pub(crate) path: String,
    pub(crate) id: BookId,
    /// The book's title; its number, if it is no longer in the catalogue.
    pub(crate) title: String,
    pub(crate) price: String,
    /// RFC 3339, in UTC.
    pub(crate) time: String,
    pub(crate) key: String,
}

impl Sale {
    pub(crate) fn new(made: &Remembered, id: BookId, book: Option<&Book>, time_ms: i64, locale: Locale) -> Self {
        let since = Duration::from_millis(u64::try_from(time_ms).unwrap_or_default());
        Self {
            number: made.number,
            path: made.receipt(),
            id,
            title: book.map_or_else(|| format!("Book {id}"), |book| book.title().to_owned()),
            price: locale.price(made.key.price),
            time: humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + since).to_string(),
            key: made.key.to_string(),
        }
    }

    /// The time for readers: date and minute.
    fn shown_time(&self) -> String {
        self.time.get(..16).unwrap_or(&self.time).replace('T', " ") + " UTC"
    }
}

/// `/shop/receipt`.
#[derive(Debug, Template)]
#[template(path = "receipt.html")]
pub(crate) struct ReceiptPage {
    pub(crate) frame: Frame,
    pub(crate) sale: Sale,
    /// The request repeated an earlier one.
    pub(crate) is_again: bool,
    /// Path of the proof, if the store has any.
    pub(crate) proof: Option<String>,
    /// Cover and form of the book, if it is still in the catalogue.
    pub(crate) book: Option<(Cover, BuyForm)>,
    /// Name and path of its topic.
    pub(crate) topic: Option<(String, String)>,
}

/// `/shop/purchases`.
#[derive(Debug, Template)]
#[template(path = "purchases.html")]
pub(crate) struct PurchasesPage {
    pub(crate) frame: Frame,
    pub(crate) sales: Vec<Sale>,
    pub(crate) total: String,
    pub(crate) remembered_max: usize,
}

impl PurchasesPage {
    pub(crate) fn total(prices: impl Iterator<Item = Cents>, locale: Locale) -> String {
        let cents = prices.map(Cents::get).sum();
        locale.price(Cents::new(cents).unwrap_or(Cents::MAX))
    }
}

/// A page for what cannot be done: what happened, and what to do.
#[derive(Debug, Template)]
#[template(path = "sorry.html")]
pub(crate) struct SorryPage {
    pub(crate) frame: Frame,
    pub(crate) kind: &'static str,
    pub(crate) title: String,
    pub(crate) text: String,
    /// The book in question, with a form if it may still be bought.
    pub(crate) book: Option<(Cover, Option<BuyForm>)>,
    /// Links: labels and paths, the best first.
    pub(crate) ways: Vec<(String, String)>,
    /// Books to buy instead.
    pub(crate) instead: Vec<Card>,
}

/// The page that asks for a token.
#[derive(Debug, Template)]
#[template(path = "sign-in.html")]
pub(crate) struct SignInPage {
    pub(crate) frame: Frame,
    /// Reason for the refusal of the last token.
    pub(crate) refused: Option<&'static str>,
}
