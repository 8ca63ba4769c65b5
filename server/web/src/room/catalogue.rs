//! The catalogue for operators: books, a book's page, and changes of them.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
};
use bookstore::{
    BookId, Bookstore, Cents, Fault,
    catalogue::Book,
    domain::{RESTOCK_DEFAULT, STOCK_MAX},
};

use super::{
    door::Sent,
    operator::Operator,
    state::{Room, forged, respond},
    views::{BookPage, BookRow, CataloguePage},
};
use crate::{
    locale::Locale,
    request::{encoded, query},
    views::{Cover, Stock},
    visit::Visit,
};

/// Books on a page.
const PAGE_BOOKS: usize = 50;

/// Titles that one search compares.
const SCANNED_MAX: usize = 100_000;

/// Number of books above which a restock of all has to be confirmed.
pub(crate) const ASKED_ABOVE: usize = 100;

fn row(book: &Arc<Book>, locale: Locale) -> BookRow {
    BookRow {
        id: book.id(),
        title: book.title().to_owned(),
        topic: book.topic().to_owned(),
        stock: locale.count(book.stock()),
        level: Stock::new(book.stock(), locale).level,
        price: locale.price(book.price()),
    }
}

/// Books whose title or topic has all words of a text, from the first after one; at most a page, with the last one that was
/// looked at if there may be more.
async fn matching(
    store: &Bookstore,
    text: &str,
    after: Option<BookId>,
) -> Result<(Vec<Arc<Book>>, Option<BookId>), Fault> {
    let words: Vec<String> = text.to_lowercase().split_whitespace().map(str::to_owned).collect();
    let (mut found, mut scanned, mut after) = (Vec::new(), 0, after);
    loop {
        let page = store.list(after, 0).await?;
        for book in &*page.items {
            let (title, topic) = (book.title().to_lowercase(), book.topic().to_lowercase());
            if words.iter().all(|word| title.contains(word) || topic.contains(word)) {
                found.push(Arc::clone(book));
                if found.len() == PAGE_BOOKS {
                    return Ok((found, Some(book.id())));
                }
            }
        }
        scanned += page.items.len();
        after = page.next;
        if after.is_none() || scanned >= SCANNED_MAX {
            return Ok((found, after));
        }
        // Other calls of the thread take their turns.
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn catalogue(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let (typed, store) = (query(&visit.uri, "q").unwrap_or_default(), room.store());
    let typed = typed.trim();
    let after = query(&visit.uri, "after").and_then(|text| BookId::parse(&text).ok());
    if let Ok(id) = BookId::parse(typed) {
        return Redirect::to(&format!("/admin/catalogue/book?id={id}")).into_response();
    }
    let found = if typed.is_empty() {
        let page = match store.list(after, PAGE_BOOKS).await {
            Ok(page) => Ok(page),
            // A lower limit on pages.
            Err(_) => store.list(after, 0).await,
        };
        page.map(|page| (page.items.to_vec(), page.next))
    } else {
        matching(store, typed, after).await
    };
    let (books, next) = match found {
        Ok(found) => found,
        Err(fault) => return room.failed(&visit, &operator, &fault),
    };
    let path = format!("/admin/catalogue?q={}", encoded(typed));
    let page = CataloguePage {
        frame: room.frame(&visit, &operator, "/admin/catalogue"),
        rows: books.iter().map(|book| row(book, visit.locale)).collect(),
        books: visit.locale.count(store.books() as u64),
        is_asked: store.books() > ASKED_ABOVE,
        amount: RESTOCK_DEFAULT,
        stock_max: STOCK_MAX,
        first: after.is_some().then(|| path.clone()),
        next: next.map(|last| format!("{path}&after={last}")),
        typed: typed.to_owned(),
    };
    respond(StatusCode::OK, &page)
}

pub(crate) async fn book(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let asked = query(&visit.uri, "id").unwrap_or_default();
    let found = match BookId::parse(&asked) {
        Ok(id) => room.store().lookup(id).await,
        Err(_) => Ok(None),
    };
    let book = match found {
        Ok(Some(book)) => book,
        Ok(None) => {
            let text = format!("No book has the number {asked}. The catalogue finds books by title, topic and number.");
            return room.sorry(&visit, &operator, StatusCode::NOT_FOUND, "There is no such book", text);
        }
        Err(fault) => return room.failed(&visit, &operator, &fault),
    };
    let page = BookPage {
        frame: room.frame(&visit, &operator, "/admin/catalogue"),
        cover: Cover::of(&book),
        row: row(&book, visit.locale),
        plain_price: book.price().to_string(),
        stock_max: STOCK_MAX,
        amount: RESTOCK_DEFAULT,
    };
    respond(StatusCode::OK, &page)
}

impl Room {
    /// The page for a fault of the store.
    pub(crate) fn failed(&self, visit: &Visit, operator: &Operator, fault: &Fault) -> Response {
        let mut response = self.sorry(
            visit,
            operator,
            StatusCode::SERVICE_UNAVAILABLE,
            "The store does not answer",
            format!("{fault}."),
        );
        response.headers_mut().insert(header::RETRY_AFTER, 1.into());
        response
    }
}

/// A price as an operator types it: with a point or a comma.
fn price(text: &str) -> Result<Cents, String> {
    let plain = text.trim().replace(',', ".");
    Cents::parse(&plain).ok_or_else(|| format!("“{text}” is no price; it must be as 12.50. Nothing was changed."))
}

/// An amount of copies.
fn amount(text: &str) -> Result<i64, String> {
    let wanted = text.trim().parse::<u32>().ok().filter(|copies| *copies <= STOCK_MAX);
    wanted.map(i64::from).ok_or_else(|| format!("“{text}” is no number of copies. Nothing was changed."))
}

/// Raises every book.
pub(crate) async fn restock_all(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let (store, wanted) = (room.store().clone(), amount(sent.field("amount")));
    let is_confirmed = store.books() <= ASKED_ABOVE || sent.field("sure") == "yes";
    let action = format!("restock {}", sent.field("amount"));
    let work = Box::pin(async move {
        let amount = wanted?;
        if !is_confirmed {
            return Err("Mark that you want to raise every book. Nothing was changed.".to_owned());
        }
        let done = store.restock(amount).await.map_err(|fault| format!("{fault}."))?;
        let books = if done.books_raised == 1 { "book" } else { "books" };
        Ok(format!("{} {books} raised to {amount} copies.", done.books_raised))
    });
    room.act(&visit, &operator, sent.once(), (action, "/admin/catalogue"), work).await
}

/// Sets a book's price.
pub(crate) async fn reprice(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let Ok(id) = BookId::parse(sent.field("id")) else { return forged() };
    let (store, wanted) = (room.store().clone(), price(sent.field("price")));
    let action = format!("update {id} {}", sent.field("price"));
    let work = Box::pin(async move {
        let price = wanted?;
        let done = store.update_price(id, price.get()).await.map_err(|fault| format!("{fault}."))?;
        let change = done.ok_or_else(|| format!("There is no book {id}."))?;
        Ok(format!(
            "Book {id} costs {} now, {} before; entry {} of the log.",
            change.after, change.before, change.number
        ))
    });
    room.act(&visit, &operator, sent.once(), (action, &format!("/admin/catalogue/book?id={id}")), work).await
}
