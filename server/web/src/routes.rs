//! Paths of the shop, admission of their callers, and what every answer has.

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Redirect, Response},
    routing::{MethodRouter, get, post},
};
use bookstore::BookId;
use bytes::Bytes;
use hosting::access::Denied;

use crate::{
    assets::{Assets, FOLDER},
    browse,
    live::BOOKS_MAX,
    purchase,
    request::{field, query},
    shop::Shop,
    views::{SignInPage, SorryPage},
    visit::{self, Visit},
};

/// Most bytes of a form: the longest has a token of 1,024 characters, each of which may take three bytes.
const FORM_BYTES_MAX: usize = 4096;

/// Only files of this server, and nothing written into a page, may be run, shown or framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Answer to a further stream.
const CROWDED: &str = "too many pages are live; load the page again instead\n";

/// Headers of every answer.
const GUARDS: [(header::HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // Not `no-referrer`, with which forms would have the origin `null`.
    (header::REFERRER_POLICY, "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The pages, which admit their callers themselves: by a token, or by the cookie that a form sets.
pub(crate) fn router(shop: &Shop) -> Router {
    let pages = Router::new()
        .route("/", get(browse::front))
        .route("/shop", get(browse::front))
        .route("/shop/topics", get(browse::topics))
        .route("/shop/topic", get(browse::topic))
        .route("/shop/search", get(browse::search))
        .route("/shop/book", get(browse::book))
        .route("/shop/buy", form(post(purchase::buy)).get(async || Redirect::to("/")))
        .route("/shop/receipt", get(purchase::receipt))
        .route("/shop/receipt/proof", get(purchase::proof))
        .route("/shop/purchases", get(purchase::purchases))
        .route("/shop/live", get(live))
        .fallback(nothing_here);
    let pages = if shop.auth().is_required() {
        pages.layer(middleware::from_fn_with_state(shop.clone(), admit))
    } else {
        pages
    };
    let open = Router::new()
        .route("/shop/sign-in", form(post(sign_in)).get(sign_in_page))
        .route(&format!("{FOLDER}{{file}}"), get(asset));
    open.merge(pages).with_state(shop.clone()).layer(middleware::map_response(guarded))
}

/// Bounds the forms of a method; a page that reads none is spared the layer.
fn form(method: MethodRouter<Shop>) -> MethodRouter<Shop> {
    method.layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
}

/// Adds what every answer has.
pub(crate) async fn guarded(mut response: Response) -> Response {
    for (name, value) in GUARDS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Admits callers by their credentials; a browser gets the form for a token.
async fn admit(State(shop): State<Shop>, mut request: Request, next: Next) -> Response {
    let visit = Visit::of(&request);
    match shop.auth().admit(visit.token().as_deref(), &visit.peer) {
        Ok(admitted) => {
            visit.peer.set_known();
            if let Some(admitted) = admitted {
                request.extensions_mut().insert(admitted);
            }
            next.run(request).await
        }
        Err(denied) => shop.token_form(&visit, &denied),
    }
}

impl Shop {
    /// The form for a token, with the reason if one was sent.
    fn token_form(&self, visit: &Visit, denied: &Denied) -> Response {
        let (status, refused) = match denied {
            Denied::Missing | Denied::Off => (StatusCode::UNAUTHORIZED, None),
            Denied::Wrong => (StatusCode::UNAUTHORIZED, Some("This token is not known. Look at it again.")),
            Denied::Scope(_) => (StatusCode::FORBIDDEN, Some("This token is good, but not for the shop.")),
            Denied::Guessing => {
                (StatusCode::TOO_MANY_REQUESTS, Some("Too many wrong tokens came from here. Try again in a minute."))
            }
        };
        let mut response = visit.page(status, &SignInPage { frame: self.frame(""), refused });
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

async fn sign_in_page(State(shop): State<Shop>, visit: Visit) -> Response {
    if !shop.auth().is_required() {
        return Redirect::to("/").into_response();
    }
    shop.token_form(&visit, &Denied::Missing)
}

/// Keeps a good token in a cookie.
async fn sign_in(State(shop): State<Shop>, visit: Visit, form: Bytes) -> Response {
    if !visit.is_same_origin() {
        return shop.forged(&visit);
    }
    let token = field(&form, "token").unwrap_or_default();
    if let Err(denied) = shop.auth().admit(Some(token.trim().as_bytes()), &visit.peer) {
        return shop.token_form(&visit, &denied);
    }
    let mut response = Redirect::to("/").into_response();
    visit::keep(&mut response, &visit::token_cookie(token.trim(), shop.is_tls()));
    response
}

async fn asset(visit: Visit) -> Response {
    Assets::answer(visit.uri.path(), &visit.headers).unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
}

async fn nothing_here(State(shop): State<Shop>, visit: Visit) -> Response {
    let ways = vec![("The shop".to_owned(), "/".to_owned()), ("All topics".to_owned(), "/shop/topics".to_owned())];
    let page = SorryPage {
        frame: shop.frame(""),
        kind: "nothing",
        title: "There is no such page".to_owned(),
        text: "The address may have a slip in it. The search above finds topics, titles and numbers.".to_owned(),
        book: None,
        ways,
        instead: Vec::new(),
    };
    visit.page(StatusCode::NOT_FOUND, &page)
}

/// The stream of the books on a page.
async fn live(State(shop): State<Shop>, visit: Visit) -> Response {
    let listed = query(&visit.uri, "books").unwrap_or_default();
    let mut books: Vec<BookId> = listed.split(',').filter_map(|id| BookId::parse(id).ok()).take(BOOKS_MAX).collect();
    books.sort_unstable();
    books.dedup();
    if books.is_empty() {
        return (StatusCode::BAD_REQUEST, "name books by their numbers, as books=1,2\n").into_response();
    }
    let opened = shop.live().open(books, visit.locale, visit.client(), visit.admitted.clone());
    opened.map_or_else(
        || (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "30")], CROWDED).into_response(),
        stream,
    )
}

fn stream(events: Body) -> Response {
    let fields = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // nginx would keep events back otherwise.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (fields, events).into_response()
}
