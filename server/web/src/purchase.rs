//! Buying exactly once: the form, the receipt, and this browser's purchases.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
};
use bookstore::{
    BookId, Cents, Fault, Verdict,
    catalogue::Book,
    domain::{Entry, EntryKind},
    store::Page,
};
use bytes::Bytes;

use crate::{
    keys::{FormKey, REMEMBERED_MAX, Remembered},
    request::{field, query},
    shop::Shop,
    views::{BuyForm, Cover, PurchasesPage, ReceiptPage, Sale, SorryPage, topic_path},
    visit::{Visit, keep, purchases_cookie},
};

/// Time in which a purchase is on disk or refused: what a shopper waits for a page.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval and number of looks for a log entry that is committed and not yet final for readers.
const LOOK: (Duration, u32) = (Duration::from_millis(50), 40);

/// Buys one copy, once for each form, and leads to the receipt.
pub(crate) async fn buy(State(shop): State<Shop>, visit: Visit, form: Bytes) -> Response {
    if !visit.is_same_origin() {
        return shop.forged(&visit);
    }
    let named = field(&form, "book").unwrap_or_default();
    let Ok(id) = BookId::parse(&named) else { return shop.no_such_book(&visit, &named) };
    let Some(key) = field(&form, "key").as_deref().and_then(FormKey::parse) else {
        let fault = Fault::invalid("key", "not a form’s", "the key of the book’s own form");
        return shop.failed(&visit, &fault, None);
    };
    if let Some(made) = visit.purchases().with(&key) {
        return Redirect::to(&(made.receipt() + "&again=1")).into_response();
    }
    let book = match shop.store().lookup(id).await {
        Ok(Some(book)) => book,
        Ok(None) => return shop.no_such_book(&visit, &named),
        Err(fault) => return shop.failed(&visit, &fault, None),
    };
    let deadline = Instant::now() + PATIENCE;
    let receipt = match shop.store().buy_one_at(id, key.price, key.for_ledger(), Some(deadline)).await {
        Ok(receipt) => receipt,
        Err(Fault::PriceChanged(now)) => return shop.price_changed(&visit, &book, &key, now),
        Err(fault) => return shop.failed(&visit, &fault, Some((&book, key))),
    };
    match (receipt.verdict, receipt.number) {
        (Verdict::Bought, Some(number)) => {
            let made = Remembered { number, key };
            let again = if receipt.replayed { "&again=1" } else { "" };
            let mut response = Redirect::to(&(made.receipt() + again)).into_response();
            shop.remember(&visit, made, &mut response);
            response
        }
        (Verdict::NoSuchBook, _) => shop.no_such_book(&visit, &named),
        _ => shop.sold_out(&visit, &book).await,
    }
}

pub(crate) async fn receipt(State(shop): State<Shop>, visit: Visit) -> Response {
    let number = query(&visit.uri, "number").and_then(|text| text.parse().ok()).filter(|number: &i64| *number > 0);
    let key = query(&visit.uri, "key").as_deref().and_then(FormKey::parse);
    let Some(made) = number.zip(key).map(|(number, key)| Remembered { number, key }) else {
        return shop.no_such_receipt(&visit);
    };
    let entry = match shop.entry_soon(&made).await {
        Ok(Some(entry)) => entry,
        Ok(None) => return shop.no_such_receipt(&visit),
        Err(fault) => return shop.failed(&visit, &fault, None),
    };
    let book = shop.store().lookup(entry.book).await.ok().flatten();
    let page = ReceiptPage {
        frame: shop.frame(""),
        sale: Sale::new(&made, entry.book, book.as_deref(), entry.time_ms, visit.locale),
        is_again: query(&visit.uri, "again").is_some(),
        proof: shop.store().has_receipts().then(|| made.proof()),
        topic: book.as_ref().map(|book| (book.topic().to_owned(), topic_path(book.topic()))),
        book: book.map(|book| (Cover::of(&book), BuyForm::new(&book, "Buy another for", visit.locale))),
    };
    let mut response = visit.page(StatusCode::OK, &page);
    // Two windows that buy at once each send the cookie as it was before.
    shop.remember(&visit, made, &mut response);
    response
}

/// The receipt as a file that anyone can check without the shop.
pub(crate) async fn proof(State(shop): State<Shop>, visit: Visit) -> Response {
    let number = query(&visit.uri, "number").and_then(|number| number.parse().ok());
    let key = query(&visit.uri, "key").as_deref().and_then(FormKey::parse).and_then(|key| key.for_ledger());
    let Some((number, key)) = number.zip(key) else { return shop.no_such_receipt(&visit) };
    match shop.store().receipt(number, &key).await {
        Ok(Some(receipt)) => {
            let name = format!("attachment; filename=\"receipt-{number}.tlog-proof\"");
            let fields = [
                (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
                (header::CONTENT_DISPOSITION, &name),
                (header::CACHE_CONTROL, "private, no-cache"),
            ];
            (fields, receipt).into_response()
        }
        Ok(None) => shop.no_such_receipt(&visit),
        Err(fault) => shop.failed(&visit, &fault, None),
    }
}

pub(crate) async fn purchases(State(shop): State<Shop>, visit: Visit) -> Response {
    let (mut sales, mut prices) = (Vec::new(), Vec::new());
    for made in visit.purchases().iter() {
        let entry = match shop.entry(made).await {
            Ok(Some(entry)) => entry,
            Ok(None) => continue,
            Err(fault) => return shop.failed(&visit, &fault, None),
        };
        let book = shop.store().lookup(entry.book).await.ok().flatten();
        prices.push(made.key.price);
        sales.push(Sale::new(made, entry.book, book.as_deref(), entry.time_ms, visit.locale));
    }
    let total = PurchasesPage::total(prices.into_iter(), visit.locale);
    let page = PurchasesPage { frame: shop.frame(""), sales, total, remembered_max: REMEMBERED_MAX };
    visit.page(StatusCode::OK, &page)
}

impl Shop {
    /// Adds a purchase to the cookie.
    fn remember(&self, visit: &Visit, made: Remembered, response: &mut Response) {
        let mut purchases = visit.purchases();
        if purchases.add(made) {
            keep(response, &purchases_cookie(&purchases, self.is_tls()));
        }
    }

    /// The log's entry of a purchase; `None` if it is not one with this key.
    async fn entry(&self, made: &Remembered) -> Result<Option<Entry>, Fault> {
        let found = self.store().log(Page::After(made.number - 1), 1).await?.items.pop();
        let key = made.key.for_ledger();
        let bytes = key.as_ref().map(bookstore::IdempotencyKey::as_bytes);
        Ok(found.filter(|entry| {
            let same_key = entry.key.as_ref().map(bookstore::IdempotencyKey::as_bytes) == bytes;
            entry.number == made.number && entry.kind == EntryKind::Purchase && same_key
        }))
    }

    /// As [`Shop::entry`], for a purchase that may just have been committed: over a shared database an entry is shown
    /// once every earlier one is known.
    async fn entry_soon(&self, made: &Remembered) -> Result<Option<Entry>, Fault> {
        let (pause, looks) = LOOK;
        for _ in 0..looks {
            let is_shown = self.store().levels().log_number >= made.number;
            let found = self.entry(made).await?;
            if found.is_some() || is_shown {
                return Ok(found);
            }
            tokio::time::sleep(pause).await;
        }
        Ok(None)
    }

    async fn sold_out(&self, visit: &Visit, book: &Arc<Book>) -> Response {
        // Restocked meanwhile: a new key, since this one stays refused.
        let form = (book.stock() > 0).then(|| BuyForm::new(book, "Buy for", visit.locale));
        let page = SorryPage {
            frame: self.frame(""),
            kind: "sold-out",
            title: "Sold out".to_owned(),
            text: format!("Someone else took the last copy of “{}”. You were not charged.", book.title()),
            book: Some((Cover::of(book), form)),
            ways: vec![
                (format!("More on {}", book.topic()), topic_path(book.topic())),
                ("The book".to_owned(), format!("/shop/book?id={}", book.id())),
            ],
            instead: self.beside(book, visit.locale, |other| other.stock() > 0).await,
        };
        visit.page(StatusCode::CONFLICT, &page)
    }

    fn price_changed(&self, visit: &Visit, book: &Arc<Book>, key: &FormKey, now: Cents) -> Response {
        let (before, now) = (visit.locale.price(key.price), visit.locale.price(now));
        let page = SorryPage {
            frame: self.frame(""),
            kind: "price",
            title: "The price has changed".to_owned(),
            text: format!("You saw {before}; “{}” is {now} now. This click bought nothing.", book.title()),
            book: Some((Cover::of(book), Some(BuyForm::new(book, "Buy for", visit.locale)))),
            ways: vec![
                ("The book".to_owned(), format!("/shop/book?id={}", book.id())),
                ("Your purchases".to_owned(), "/shop/purchases".to_owned()),
            ],
            instead: Vec::new(),
        };
        visit.page(StatusCode::CONFLICT, &page)
    }

    fn no_such_receipt(&self, visit: &Visit) -> Response {
        let page = SorryPage {
            frame: self.frame(""),
            kind: "no-receipt",
            title: "There is no such receipt".to_owned(),
            text: "A receipt’s address has its number and its key; one of them is not right.".to_owned(),
            book: None,
            ways: vec![
                ("Your purchases".to_owned(), "/shop/purchases".to_owned()),
                ("The shop".to_owned(), "/".to_owned()),
            ],
            instead: Vec::new(),
        };
        visit.page(StatusCode::NOT_FOUND, &page)
    }
}
