//! The shop's pages as browsers get them: exactly once by form, live stock, a page for each refusal, headers.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use bookstore::grpc::wire::UpdatePriceRequest;

use crate::common::{
    PATIENCE, http,
    process::{self, Server, Start},
    store::{BOOK, folder, folder_with, one},
    wait_for,
};

const HTML: &str = "Accept: text/html\r\n";

/// Most streams of one client: three quarters of `web::STREAMS_MAX`.
const STREAMS_OF_ONE_MAX: usize = web::STREAMS_MAX / 4 * 3;

pub(crate) fn ask(address: SocketAddr, request: impl AsRef<[u8]>) -> http::Page {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(request.as_ref()).expect("it is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    http::Page { status, head: head.to_owned(), body: body.to_owned() }
}

pub(crate) fn get(server: &Server, path: &str, fields: &str) -> http::Page {
    ask(server.address, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{HTML}{fields}Connection: close\r\n\r\n"))
}

pub(crate) fn post(server: &Server, path: &str, form: &str, fields: &str) -> http::Page {
    let length = form.len();
    ask(
        server.address,
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{HTML}{fields}Content-Length: {length}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n\r\n{form}"
        ),
    )
}

/// The text between two others.
pub(crate) fn between<'p>(page: &'p str, before: &str, after: &str) -> &'p str {
    let (_, rest) = page.split_once(before).unwrap_or_else(|| panic!("no {before} in\n{page}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no {after} in\n{rest}")).0
}

/// The form of a book's page, filled in.
fn form(server: &Server, book: i32) -> String {
    let page = get(server, &format!("/shop/book?id={book}"), "");
    assert_eq!(page.status, 200, "{}", page.head);
    format!("book={book}&key={}", between(&page.body, "name=\"key\" value=\"", "\""))
}

pub(crate) fn field<'p>(page: &'p http::Page, name: &str) -> Option<&'p str> {
    let fields = page.head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
}

pub(crate) fn location(page: &http::Page) -> String {
    assert_eq!(page.status, 303, "{}\n{}", page.head, page.body);
    field(page, "location").expect("a location").to_owned()
}

fn outcome(page: &http::Page) -> (u16, &str) {
    (page.status, between(&page.body, "data-outcome=\"", "\""))
}

#[test]
fn a_browser_gets_the_shop_and_other_clients_the_list() {
    let folder = folder();
    let server = Server::start(folder.path());
    let front = get(&server, "/", "Accept-Language: de\r\n");
    assert_eq!((front.status, field(&front, "content-type")), (200, Some("text/html; charset=utf-8")));
    for text in ["4 books", "Surviving College", "29,99", "1.000 in stock", "href=\"/shop/topic?name=college+life\""] {
        assert!(front.body.contains(text), "no {text} in\n{}", front.body);
    }
    assert_eq!(field(&front, "set-cookie"), None);
    assert!(field(&front, "vary").is_some_and(|vary| vary.contains("accept-language")), "{}", front.head);
    let plain = http::get(server.address, "/");
    assert!(plain.body.starts_with("quire ") && !plain.body.contains("/shop"), "{}", plain.body);
    let search = get(&server, "/shop/search?q=colege+life", "").body;
    assert!(search.contains("name=college+life"), "{search}");
    assert!(get(&server, "/shop/search?q=hugs+bugs", "").body.contains("Achieving Less Bugs"));
    assert!(get(&server, "/shop/search?q=53573", "").body.contains("Distributed Systems for Dummies"));
    let escaped = get(&server, "/shop/search?q=%3Cscript%3Ealert(1)%3C/script%3E", "").body;
    assert!(!escaped.contains("<script>alert"), "{escaped}");
    let off = Start::default().set("web.enabled=false").serve(folder.path());
    assert!(get(&off, "/", "").body.contains("<pre>"));
    assert_eq!(get(&off, "/shop", "").status, 404);
}

#[test]
fn answers_run_nothing_of_others_and_files_are_kept_for_ever() {
    let folder = folder();
    let server = Server::start(folder.path());
    for path in ["/", "/shop/book?id=12365", "/shop/nothing", "/shop/purchases"] {
        let page = get(&server, path, "");
        let policy = field(&page, "content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(field(&page, "x-content-type-options"), Some("nosniff"));
        assert_eq!(field(&page, "cache-control"), Some("private, no-cache"));
        assert!(!page.body.contains("style=") && !page.body.contains("http://") && !page.body.contains("https://"));
    }
    let front = get(&server, "/", "").body;
    let files: BTreeSet<&str> = front.split('"').filter(|word| word.starts_with("/shop/assets/")).collect();
    assert_eq!(files.len(), 5, "{files:?}");
    let mut bytes = front.len();
    for file in files {
        let plain = get(&server, file, "");
        assert_eq!((plain.status, field(&plain, "content-encoding")), (200, None), "{file}");
        assert_eq!(field(&plain, "cache-control"), Some("public, max-age=31536000, immutable"));
        let packed = get(&server, file, "Accept-Encoding: br, gzip\r\n");
        assert_eq!(field(&packed, "content-encoding"), Some("gzip"));
        bytes += field(&packed, "content-length").and_then(|length| length.parse::<usize>().ok()).expect("a length");
    }
    assert!(bytes < 60 * 1024, "{bytes}");
    assert_eq!(get(&server, "/shop/assets/style-0000000000000000.css", "").status, 404);
}

#[tokio::test]
async fn a_form_that_is_sent_again_buys_once_and_says_so() {
    let folder = folder();
    let server = Server::start(folder.path());
    let form = form(&server, BOOK);
    let first = post(&server, "/shop/buy", &form, "Sec-Fetch-Site: same-origin\r\n");
    let cookie = field(&first, "set-cookie").expect("a cookie").to_owned();
    assert!(cookie.contains("; Path=/shop; ") && cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
    assert!(!location(&first).contains("again"));
    // As a second click sends it, before the cookie has come.
    let second = post(&server, "/shop/buy", &form, "Origin: http://localhost\r\n");
    assert_eq!(location(&second), location(&first) + "&again=1");
    let number = between(&location(&first), "number=", "&").to_owned();
    let key = between(&form, "key=", ":").to_owned();
    let path = format!("/shop/receipt?number={number}&key={key}:2999");
    let receipt = get(&server, &path, "");
    assert_eq!(outcome(&receipt), (200, "bought"));
    assert!(receipt.body.contains("29.99") && !receipt.body.contains("second time"), "{}", receipt.body);
    assert!(get(&server, &(path + "&again=1"), "").body.contains("second time"));
    let cookie = format!("Cookie: quire-purchases={number}:{key}:2999\r\n");
    let third = post(&server, "/shop/buy", &form, &cookie);
    assert!(location(&third).ends_with("&again=1") && field(&third, "set-cookie").is_none());
    let listed = get(&server, "/shop/purchases", &cookie).body;
    assert!(listed.contains(&format!("No. {number}")) && listed.contains("Surviving College"), "{listed}");
    let others = get(&server, "/shop/purchases", &cookie.replace(&key, &key.chars().rev().collect::<String>())).body;
    assert!(!others.contains(&format!("No. {number}")), "{others}");
    assert_eq!(http::metric(server.address, "quire_purchases_total{outcome=\"bought\"}"), 1);
    let bought = server.shop().buy(one(BOOK)).await.expect("an answer").into_inner();
    assert_eq!(bought.stock_left, Some(998), "one by the form and one now");
}

#[tokio::test]
async fn a_form_whose_answer_was_lost_finds_its_purchase_after_the_price_has_changed() {
    let folder = folder();
    let server = Server::start(folder.path());
    let (bought, not_yet) = (form(&server, BOOK), form(&server, BOOK));
    let first = location(&post(&server, "/shop/buy", &bought, ""));
    let raised = UpdatePriceRequest { id: BOOK, price_cents: Some(250) };
    server.admin().update_price(raised).await.expect("an answer");
    assert_eq!(location(&post(&server, "/shop/buy", &bought, "")), first + "&again=1");
    assert_eq!(outcome(&post(&server, "/shop/buy", &not_yet, "")), (409, "price"));
    assert_eq!(http::metric(server.address, "quire_purchases_total{outcome=\"bought\"}"), 1);
}

#[tokio::test]
async fn each_refusal_has_its_page() {
    let folder =
        folder_with("7,The Last One,scarcity,1,9.99\n8,There Is More,scarcity,5,1\n9,At One Price,prices,5,2.50\n");
    let server = Server::start(folder.path());
    let (first, second) = (form(&server, 7), form(&server, 7));
    location(&post(&server, "/shop/buy", &first, ""));
    for _ in 0..2 {
        let refused = post(&server, "/shop/buy", &second, "");
        assert_eq!(outcome(&refused), (409, "sold-out"));
        assert!(refused.body.contains("There Is More") && field(&refused, "set-cookie").is_none());
    }
    assert!(get(&server, "/shop/book?id=7", "").body.contains("<button disabled>"));
    let shown = form(&server, 8);
    let raised = UpdatePriceRequest { id: 8, price_cents: Some(250) };
    server.admin().update_price(raised).await.expect("an answer");
    let changed = post(&server, "/shop/buy", &shown, "");
    assert_eq!(outcome(&changed), (409, "price"));
    assert!(changed.body.contains("1.00") && changed.body.contains("2.50"), "{}", changed.body);
    let other = form(&server, 8);
    location(&post(&server, "/shop/buy", &other, ""));
    let reused = post(&server, "/shop/buy", &other.replace("book=8", "book=9"), "");
    assert_eq!(outcome(&reused), (409, "reused"));
    let gone = post(&server, "/shop/buy", &other.replace("book=8", "book=99"), "");
    assert_eq!(outcome(&gone), (404, "no-book"));
    for site in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
    ] {
        assert_eq!(outcome(&post(&server, "/shop/buy", &form(&server, 8), site)), (403, "forged"), "{site}");
    }
    assert_eq!(outcome(&post(&server, "/shop/buy", "book=8&key=x", "")), (400, "key"));
    for path in ["/shop/buy", "/shop/sign-in"] {
        assert_eq!(post(&server, path, &"x".repeat(5000), "").status, 413, "{path}");
    }
    for (path, kind) in [
        ("/shop/book?id=99", "no-book"),
        ("/shop/book?id=one", "no-book"),
        ("/shop/book", "no-book"),
        ("/shop/topic?name=scarcety", "no-topic"),
        ("/shop/topic", "no-topic"),
        ("/shop/receipt?number=1&key=x", "no-receipt"),
        ("/shop/nothing", "nothing"),
    ] {
        assert_eq!(outcome(&get(&server, path, "")), (404, kind), "{path}");
    }
    assert!(get(&server, "/shop/topic?name=scarcety", "").body.contains("name=scarcity"));
    let long = format!("/shop/topic?name={}", "x".repeat(300));
    assert_eq!(outcome(&get(&server, &long, "")), (400, "invalid"));
}

#[test]
fn a_topic_is_paged_by_key_forwards_and_back() {
    let rows: Vec<String> = (1..=130).map(|id| format!("{},Book {id},many & more,5,1\n", id * 2)).collect();
    let folder = folder_with(&rows.concat());
    let server = Server::start(folder.path());
    let ids = |page: &str| -> Vec<u32> {
        let cards = page.split("href=\"/shop/book?id=").skip(1);
        cards.map(|rest| rest.split('"').next().and_then(|id| id.parse().ok()).expect("an id")).collect()
    };
    let link = |page: &str, rel: &str| {
        let (_, rest) = page.split_once(&format!("rel=\"{rel}\" href=\""))?;
        Some(rest.split_once('"')?.0.replace("&#38;", "&").replace("&amp;", "&"))
    };
    let mut path = "/shop/topic?name=many+%26+more".to_owned();
    let (mut seen, mut pages) = (Vec::new(), Vec::new());
    loop {
        let page = get(&server, &path, "").body;
        assert!(page.contains("130 books"), "{page}");
        seen.extend(ids(&page));
        let next = link(&page, "next");
        pages.push(page);
        let Some(next) = next else { break };
        path = next;
    }
    assert_eq!((seen, pages.len()), ((1..=130).map(|id| id * 2).collect::<Vec<_>>(), 3));
    let back = link(&pages[2], "prev").expect("a page before");
    assert_eq!(ids(&get(&server, &back, "").body), ids(&pages[1]));
    assert_eq!(link(&pages[0], "prev"), None);
}

/// A stream of events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(server: &Server, books: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        write!(stream, "GET /shop/live?books={books} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is taken");
        Self(BufReader::new(stream))
    }

    fn status(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        line.split(' ').nth(1).expect("a status").to_owned()
    }

    /// The next event of a book; `None` at the end.
    fn next(&mut self) -> Option<serde_json::Value> {
        let mut line = String::new();
        while self.0.read_line(&mut line).expect("a line") > 0 {
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).expect("JSON"));
            }
            line.clear();
        }
        None
    }
}

#[tokio::test]
async fn a_page_sees_stock_and_price_change_and_lets_the_server_stop() {
    let folder = folder_with("7,The Last One,scarcity,1,9.99\n");
    // Longer than this waits for the end.
    let server = Start::default().set("server.drain_seconds=600").serve(folder.path());
    let mut events = Events::open(&server, "12365,7");
    assert_eq!(events.status(), "200");
    let all = [events.next().expect("a book"), events.next().expect("a book")];
    assert_eq!(
        all.map(|book| book["stock"].as_str().map(str::to_owned)),
        [Some("Only 1 left".to_owned()), Some("1,000 in stock".to_owned())]
    );
    server.shop().buy(one(7)).await.expect("an answer");
    let gone = events.next().expect("a change");
    assert_eq!((&gone["book"], &gone["level"], &gone["stock"]), (&7.into(), &"out".into(), &"Sold out".into()));
    let raised = UpdatePriceRequest { id: BOOK, price_cents: Some(250) };
    server.admin().update_price(raised).await.expect("an answer");
    assert_eq!(events.next().expect("a change")["price"], "2.50");
    server.stop();
    assert!(events.next().is_none());
}

#[tokio::test]
async fn streams_are_bounded_and_leave_other_pages_alone() {
    if super::idle::files_max() < STREAMS_OF_ONE_MAX + 2000 {
        return eprintln!("left out: {} open files are allowed", super::idle::files_max());
    }
    let _others_wait = super::idle::MANY_CONNECTIONS.lock().await;
    let folder = folder();
    let server = Server::start(folder.path());
    let mut open: Vec<Events> = (0..STREAMS_OF_ONE_MAX).map(|_| Events::open(&server, "12365")).collect();
    assert!(open.iter_mut().all(|events| events.status() == "200"));
    let refused = get(&server, "/shop/live?books=12365", "");
    assert_eq!((refused.status, field(&refused, "retry-after")), (503, Some("30")));
    assert_eq!(get(&server, "/shop/book?id=12365", "").status, 200);
    open.truncate(10);
    wait_for("a place", || (Events::open(&server, "12365").status() == "200").then_some(()));
    assert_eq!(get(&server, "/shop/live?books=x", "").status, 400);
}

#[test]
fn a_closed_shop_asks_a_browser_for_a_token_and_keeps_it() {
    let folder = folder();
    let made = process::run(folder.path(), &["token", "new", "--scope", "shop", "--name", "shopper"], "");
    let made = String::from_utf8(made.stdout).expect("text");
    let (token, line) = made.trim_end().split_once('\n').expect("a token and its line");
    std::fs::write(folder.path().join("tokens"), format!("{line}\n")).expect("a file");
    let server = Start::default().set("server.tokens=tokens").serve(folder.path());
    for path in ["/", "/shop/book?id=12365", "/shop/live?books=12365"] {
        let asked = get(&server, path, "");
        assert_eq!(asked.status, 401, "{path}");
        assert!(asked.body.contains("action=\"/shop/sign-in\"") && !asked.body.contains("Surviving"), "{}", asked.body);
        assert_eq!(get(&server, path, "Authorization: Bearer wrong\r\n").status, 401);
    }
    assert_eq!(http::get(server.address, "/").status, 401, "the list, too");
    assert_eq!(get(&server, "/shop/sign-in", "").status, 401);
    assert!(post(&server, "/shop/sign-in", "token=wrong", "").body.contains("not known"));
    assert_eq!(
        post(&server, "/shop/sign-in", &format!("token={token}"), "Origin: http://evil.example\r\n").status,
        403
    );
    let entered = post(&server, "/shop/sign-in", &format!("token={token}"), "");
    assert_eq!(location(&entered), "/");
    assert!(field(&entered, "set-cookie").is_some_and(|cookie| cookie.contains("; Path=/; HttpOnly; SameSite=Lax")));
    for fields in [format!("Cookie: quire-token={token}\r\n"), format!("Authorization: Bearer {token}\r\n")] {
        assert!(get(&server, "/", &fields).body.contains("Surviving College"), "{fields}");
    }
    let open = Start::default().set("server.tokens=tokens").set("shop.open=true").serve(folder.path());
    assert_eq!(get(&open, "/", "").status, 200);
    assert_eq!(http::get(open.address, "/").status, 401, "the list is for holders of a credential");
}
