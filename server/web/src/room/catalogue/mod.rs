//! The catalogue for operators: books, a book's page, and changes of them.

pub(super) mod export;
pub(super) mod import;
pub(super) mod upload;
pub(super) mod waiting;

use std::sync::Arc;

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
};
use bookstore::{
    BookId, Bookstore, Cents, Fault,
    catalogue::Book,
    domain::{Addition, Draft, Edit, LogFilter, RESTOCK_DEFAULT, STOCK_MAX},
};

use crate::room::{
    door::Sent,
    entries,
    operator::Operator,
    parts::LogPart,
    state::{Room, forged, respond},
    views::{AddPage, BookPage, BookRow, CataloguePage},
};
use crate::{
    locale::Locale,
    request::{encoded, query},
    views::{Cover, Stock},
    visit::{Visit, rendered},
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
        held: Some(book.held()).filter(|held| *held > 0).map(|held| locale.count(held)),
        is_listed: book.is_listed(),
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
        let page = store.list_all(after, 0).await?;
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
        let page = match store.list_all(after, PAGE_BOOKS).await {
            Ok(page) => Ok(page),
            // A lower limit on pages.
            Err(_) => store.list_all(after, 0).await,
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

/// A book, listed or not.
async fn any_book(store: &Bookstore, id: BookId) -> Result<Option<Arc<Book>>, Fault> {
    if let Some(book) = store.lookup(id).await? {
        return Ok(Some(book));
    }
    let page = store.list_all(BookId::new(id.get() - 1), 1).await?;
    Ok(page.items.first().filter(|book| book.id() == id).cloned())
}

/// Entries of a book's log on its page.
const BOOK_ENTRIES: usize = 15;

pub(crate) async fn book(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let asked = query(&visit.uri, "id").unwrap_or_default();
    let found = match BookId::parse(&asked) {
        Ok(id) => any_book(room.store(), id).await,
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
    let filter = LogFilter { book: Some(book.id()), ..LogFilter::default() };
    let (log, is_more) = match entries::page(room.store(), i64::MAX, &filter, BOOK_ENTRIES).await {
        Ok(page) => (entries::titled(room.store(), page.items).await, page.next.is_some()),
        // The book is shown without its log.
        Err(_) => (Vec::new(), true),
    };
    let page = BookPage {
        log: rendered(&LogPart { rows: entries::rows(&log, visit.locale), is_more }).unwrap_or_default(),
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
    let (store, wanted, actor) = (room.store().clone(), amount(sent.field("amount")), operator.actor());
    let is_confirmed = store.books() <= ASKED_ABOVE || sent.field("sure") == "yes";
    let action = format!("restock {}", sent.field("amount"));
    let work = Box::pin(async move {
        let amount = wanted?;
        if !is_confirmed {
            return Err("Mark that you want to raise every book. Nothing was changed.".into());
        }
        let done = store.restock(amount, actor).await?;
        let books = if done.books_raised == 1 { "book" } else { "books" };
        Ok(format!("{} {books} raised to {amount} copies.", done.books_raised))
    });
    room.act(&visit, &operator, sent.once(), (action, "/admin/catalogue"), work).await
}

/// Raises a book.
pub(crate) async fn restock(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let Ok(id) = BookId::parse(sent.field("id")) else { return forged() };
    let (store, wanted, actor) = (room.store().clone(), amount(sent.field("amount")), operator.actor());
    let action = format!("restock {id} {}", sent.field("amount"));
    let work = Box::pin(async move {
        let raised = store.restock_book(id, wanted?, actor).await?;
        let raised = raised.ok_or_else(|| format!("There is no book {id}."))?;
        Ok(match raised.number {
            Some(number) => {
                format!("Raised from {} to {} copies; entry {number} of the log.", raised.before, raised.after)
            }
            None => format!("The book has {} copies already. Nothing was changed.", raised.before),
        })
    });
    room.act(&visit, &operator, sent.once(), (action, &book_path(id)), work).await
}

fn book_path(id: BookId) -> String {
    format!("/admin/catalogue/book?id={id}")
}

/// Changes a book's title, topic and price.
pub(crate) async fn edit(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let Ok(id) = BookId::parse(sent.field("id")) else { return forged() };
    let price = price(sent.field("price"));
    let texts = (sent.field("title").to_owned(), sent.field("topic").to_owned());
    let edit = price.map(|price| Edit {
        title: Some(texts.0),
        topic: Some(texts.1),
        price_cents: Some(price.get()),
        listed: None,
    });
    room.change(&visit, &operator, &sent, (format!("edit {id}"), id, edit)).await
}

/// Takes a book out of the shop, or puts it back.
pub(crate) async fn list(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let Ok(id) = BookId::parse(sent.field("id")) else { return forged() };
    let listed = sent.field("listed") == "yes";
    let edit = Edit { listed: Some(listed), ..Edit::default() };
    let action = format!("{} {id}", if listed { "relist" } else { "delist" });
    room.change(&visit, &operator, &sent, (action, id, Ok(edit))).await
}

impl Room {
    async fn change(
        &self,
        visit: &Visit,
        operator: &Operator,
        sent: &Sent,
        (action, id, edit): (String, BookId, Result<Edit, String>),
    ) -> Response {
        let (store, actor) = (self.store().clone(), operator.actor());
        let work = Box::pin(async move {
            let edited = store.edit_book(id, edit?, actor).await?;
            let edited = edited.ok_or_else(|| format!("There is no book {id}."))?;
            Ok(match (edited.number, edited.before.listed, edited.after.listed) {
                (None, ..) => "The book is so already. Nothing was changed.".to_owned(),
                (Some(number), true, false) => format!("Taken out of the shop; entry {number} of the log."),
                (Some(number), false, true) => format!("Back in the shop; entry {number} of the log."),
                (Some(number), ..) => format!("Changed; entry {number} of the log."),
            })
        });
        self.act(visit, operator, sent.once(), (action, &book_path(id)), work).await
    }
}

/// The form for a new book.
pub(crate) async fn add_form(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let page = AddPage { frame: room.frame(&visit, &operator, "/admin/catalogue"), stock_max: STOCK_MAX };
    respond(StatusCode::OK, &page)
}

/// Adds a book.
pub(crate) async fn add(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let (store, actor) = (room.store().clone(), operator.actor());
    let field = |name: &str| sent.field(name).trim().to_owned();
    let (id, title, topic) = (field("id"), field("title"), field("topic"));
    let (stock, price) = (amount(sent.field("stock")), price(sent.field("price")));
    let action = format!("add {title}");
    let work = Box::pin(async move {
        let id = match id.as_str() {
            "" => None,
            id => Some(BookId::parse(id).map_err(|fault| format!("{fault}. Nothing was changed."))?.get()),
        };
        let draft = Draft { id, title, topic, stock: stock?, price_cents: price?.get() };
        match store.add_book(draft, actor).await? {
            Addition::Added(book, number) => {
                Ok(format!("“{}” is added as No. {}; entry {number} of the log.", book.title, book.id))
            }
            Addition::Taken(book) => {
                Err(format!("No. {} is “{}” already. Choose another number, or none.", book.id, book.title).into())
            }
        }
    });
    room.act(&visit, &operator, sent.once(), (action, "/admin/catalogue/add"), work).await
}
