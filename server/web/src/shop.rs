//! The bookstore as the pages see it, and the pages for what fails.

use std::sync::Arc;

use axum::{
    http::{StatusCode, header},
    response::Response,
};
use bookstore::{Bookstore, Fault, catalogue::Book};
use hosting::{Shares, access::Authenticator};

use crate::{
    assets::Assets,
    keys::FormKey,
    live::Live,
    views::{BuyForm, Cover, Frame, SorryPage},
    visit::Visit,
};

/// Searches of titles at once, shared fairly by clients; each is bounded, and more would take turns from other calls.
const TITLE_SEARCHES_MAX: usize = 4;

/// Age of the readers' data above which pages say so.
const BEHIND_SECONDS: u64 = 3;

/// A purchase that a fault left open, so that it can be sent again with its key.
pub(crate) type Attempt<'a> = Option<(&'a Arc<Book>, FormKey)>;

/// The pages of a store; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Shop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Bookstore,
    live: Live,
    auth: Authenticator,
    is_tls: bool,
    title_searches: Shares,
}

impl Shop {
    pub(crate) fn new(store: Bookstore, live: Live, auth: Authenticator, is_tls: bool) -> Self {
        Self(Arc::new(Inner { store, live, auth, is_tls, title_searches: Shares::new(TITLE_SEARCHES_MAX) }))
    }

    pub(crate) fn store(&self) -> &Bookstore {
        &self.0.store
    }

    pub(crate) fn live(&self) -> &Live {
        &self.0.live
    }

    pub(crate) fn auth(&self) -> &Authenticator {
        &self.0.auth
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.is_tls
    }

    /// Permits of searches through titles.
    pub(crate) fn title_searches(&self) -> &Shares {
        &self.0.title_searches
    }

    /// The parts of every page, with the store's trouble.
    pub(crate) fn frame(&self, query: &str) -> Frame {
        let levels = self.store().levels();
        let age = levels.age.map_or(0, |age| age.as_secs());
        let notice = if levels.healthy {
            (age > BEHIND_SECONDS).then(|| format!("Stock and prices may be {age} seconds old. Purchases go on."))
        } else if age > BEHIND_SECONDS {
            Some(format!("Purchases are paused, and stock and prices are {age} seconds old. You can look around."))
        } else {
            Some("Purchases are paused for a moment. You can look around; nothing that was sold is lost.".to_owned())
        };
        Frame { assets: Assets::get(), notice, query: query.to_owned(), version: env!("CARGO_PKG_VERSION") }
    }

    /// The page for a form that another site's page sent.
    pub(crate) fn forged(&self, visit: &Visit) -> Response {
        let page = SorryPage {
            frame: self.frame(""),
            kind: "forged",
            title: "This did not come from the shop".to_owned(),
            text: "Another site’s page sent this form, so nothing was done. Use the shop’s own pages.".to_owned(),
            book: None,
            ways: vec![("The shop".to_owned(), "/".to_owned())],
            instead: Vec::new(),
        };
        visit.page(StatusCode::FORBIDDEN, &page)
    }

    /// The page for a fault, and how to go on.
    pub(crate) fn failed(&self, visit: &Visit, fault: &Fault, attempt: Attempt<'_>) -> Response {
        let is_purchase = attempt.is_some();
        let nothing = if is_purchase { " Nothing was bought." } else { "" };
        let (status, kind, title, text, label) = match fault {
            Fault::Limit { .. } | Fault::Overloaded { .. } | Fault::Late if is_purchase => (
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "More want to buy than the shop can serve",
                "Nothing was bought. Wait a moment and press again; your click still counts once.".to_owned(),
                "Try again",
            ),
            Fault::Invalid { field: "key", .. } => (
                StatusCode::BAD_REQUEST,
                "key",
                "This form is not one of ours",
                "A purchase needs the key of the book’s own form. Open the book’s page again and press there. Nothing was \
                 bought."
                    .to_owned(),
                "Try again",
            ),
            Fault::Limit { .. } | Fault::Invalid { .. } => (
                StatusCode::BAD_REQUEST,
                "invalid",
                "The shop cannot read this address",
                format!("{fault}."),
                "Try again",
            ),
            Fault::KeyReused { .. } => (
                StatusCode::CONFLICT,
                "reused",
                "This form bought another book",
                "A form buys the book that it was made for. Open the book’s page again and press there. Nothing was bought."
                    .to_owned(),
                "Try again",
            ),
            Fault::OutcomeUnknown => (
                StatusCode::SERVICE_UNAVAILABLE,
                "unknown",
                "It is not known yet whether you bought",
                "The store failed at just that moment. Press again: if the first click was a purchase, you get its \
                 receipt and do not buy twice."
                    .to_owned(),
                "Find out",
            ),
            Fault::Unavailable(_) | Fault::Overloaded { .. } | Fault::Late => (
                StatusCode::SERVICE_UNAVAILABLE,
                "paused",
                "The shop is paused",
                format!("Its store does not answer at the moment.{nothing} Try again in a minute."),
                "Try again",
            ),
            Fault::Failed(_)
            | Fault::Unsupported(_)
            | Fault::Stopped(_)
            | Fault::ImportStopped { .. }
            | Fault::PriceChanged(_)
            | Fault::NoRoom { .. }
            | Fault::LostEnd { .. }
            | Fault::AnswerBytes { .. } => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "failed",
                "The store failed",
                format!("The operator can read why in the log.{nothing} Try again in a minute."),
                "Try again",
            ),
        };
        let retry = |key: FormKey, book: &Arc<Book>| {
            let is_kept = !matches!(fault, Fault::KeyReused { .. } | Fault::Invalid { .. });
            is_kept.then(|| BuyForm { id: book.id(), key, label, price: String::new(), is_off: false })
        };
        let mut ways: Vec<(String, String)> = Vec::new();
        ways.extend(attempt.as_ref().map(|(book, _)| ("The book".to_owned(), format!("/shop/book?id={}", book.id()))));
        ways.push(("The shop".to_owned(), "/".to_owned()));
        let book = attempt.map(|(book, key)| (Cover::of(book), retry(key, book)));
        let (title, instead) = (title.to_owned(), Vec::new());
        let page = SorryPage { frame: self.frame(""), kind, title, text, book, ways, instead };
        let mut response = visit.page(status, &page);
        if let Some(after) = fault.retry_after() {
            let seconds = after.as_millis().div_ceil(1000).max(1);
            response.headers_mut().insert(header::RETRY_AFTER, u64::try_from(seconds).unwrap_or(u64::MAX).into());
        }
        response
    }
}
