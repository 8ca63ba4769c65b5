//! The operator's room: who gets in, whose forms count, what revoked credentials lose, and what actions do and log.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
};

use bookstore::grpc::wire::ListRequest;
use quire_rpc::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};

use super::{
    storefront::{ask, between, field, get, location, post},
    tokens::tokens,
};
use crate::common::{
    PATIENCE,
    http::{Page, metric},
    process::{Server, Start, run},
    store::{BOOK, folder, folder_with, one, other_program},
    wait_for,
};

const TOKEN: &str = "a token of operators";

/// Every page of the room.
const PAGES: [&str; 13] = [
    "/admin",
    "/admin/catalogue",
    "/admin/catalogue/book?id=12365",
    "/admin/catalogue/add",
    "/admin/catalogue/import",
    "/admin/log",
    "/admin/sales",
    "/admin/keys",
    "/admin/records",
    "/admin/work",
    "/admin/settings",
    "/admin/errors",
    "/admin/backups",
];

/// A server whose room asks for [`TOKEN`].
fn closed(folder: &std::path::Path) -> Server {
    Start::default().set(&format!("admin.token={TOKEN}")).serve(folder)
}

/// The cookie of a session, as a field of requests.
fn sign_in(server: &Server, token: &str) -> String {
    let entered = post(server, "/admin/sign-in", &format!("token={}", token.replace(' ', "+")), "");
    assert_eq!(location(&entered), "/admin");
    let cookie = field(&entered, "set-cookie").expect("a cookie");
    format!("Cookie: {}\r\n", cookie.split(';').next().expect("its value"))
}

/// The secret and the key of a page's first form that leads to `action`.
fn form(page: &Page, action: &str) -> String {
    let (_, form) = page
        .body
        .split_once(&format!("action=\"{action}\""))
        .unwrap_or_else(|| panic!("no {action} in\n{}", page.body));
    let value = |name: &str| between(form, &format!("name=\"{name}\" value=\""), "\"").to_owned();
    format!("secret={}&once={}", value("secret"), value("once"))
}

#[tokio::test]
async fn on_loopback_the_room_is_open_and_its_forms_act_once() {
    let folder = folder_with("7,The Last One,scarcity,1,9.99\n");
    let server = Server::start(folder.path());
    for path in PAGES {
        let page = get(&server, path, "");
        assert_eq!((page.status, field(&page, "cache-control")), (200, Some("no-store")), "{path}");
        let policy = field(&page, "content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(!page.body.contains(" style=") && !page.body.contains("<style"), "{path}");
        assert_eq!(field(&page, "set-cookie"), None, "{path}");
    }
    let catalogue = get(&server, "/admin/catalogue", "");
    assert!(catalogue.body.contains("The Last One"), "{}", catalogue.body);
    let restock = form(&catalogue, "/admin/catalogue/restock-all") + "&amount=5";
    let done = location(&post(&server, "/admin/catalogue/restock-all", &restock, "Sec-Fetch-Site: same-origin\r\n"));
    assert!(get(&server, &done, "").body.contains("1 book raised to 5 copies."));
    server.shop().buy(one(7)).await.expect("an answer");
    assert_eq!(location(&post(&server, "/admin/catalogue/restock-all", &restock, "")), done, "the second click");
    let book = get(&server, "/admin/catalogue/book?id=7", "");
    assert!(book.body.contains("<dt>Stock</dt><dd>4</dd>"), "{}", book.body);
    let edit = form(&book, "/admin/catalogue/edit") + "&id=7&title=The+Last+One&topic=scarcity&price=12,50";
    let done = location(&post(&server, "/admin/catalogue/edit", &edit, ""));
    assert!(get(&server, &done, "").body.contains("Changed; entry"));
    let log = get(&server, "/admin/log", "").body;
    assert!(log.contains("9.99") && log.contains("12.50") && log.contains("kind restock"), "{log}");
    let line = "\"method\":\"restock 5\",\"credential\":\"none needed\"";
    server.log.until(line);
    assert_eq!(server.log.text().matches(line).count(), 1);
}

#[test]
fn an_operator_signs_in_with_a_token_and_out_again() {
    let folder = folder();
    let server = closed(folder.path());
    for path in PAGES {
        let asked = get(&server, path, "");
        assert_eq!(asked.status, 401, "{path}");
        let shown = asked.body.contains("action=\"/admin/sign-in\"") && !asked.body.contains("Surviving");
        assert!(shown && field(&asked, "set-cookie").is_none(), "{}", asked.body);
    }
    assert!(get(&server, "/admin/log?before=9", "").body.contains("value=\"/admin/log?before=9\""));
    let wrong = post(&server, "/admin/sign-in", "token=wrong", "");
    assert!(wrong.status == 401 && wrong.body.contains("This token is not known."), "{}", wrong.body);
    let form = format!("token={}", TOKEN.replace(' ', "+"));
    for next in ["https://evil.example", "//evil.example", "/shop", "/admin%0d%0ax:y", "/admin\\evil"] {
        assert_eq!(location(&post(&server, "/admin/sign-in", &format!("{form}&next={next}"), "")), "/admin", "{next}");
    }
    let entered =
        post(&server, "/admin/sign-in", &format!("{form}&next=/admin/log"), "Sec-Fetch-Site: same-origin\r\n");
    assert_eq!(location(&entered), "/admin/log");
    let cookie = field(&entered, "set-cookie").expect("a cookie");
    assert!(cookie.ends_with("; Path=/admin; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(cookie.starts_with(&format!("quire-room-{}=", server.address.port())), "{cookie}");
    let session = sign_in(&server, TOKEN);
    let page = get(&server, "/admin/log", &session);
    assert!(page.status == 200 && page.body.contains("admin.token"), "{}", page.body);
    let leave = self::form(&page, "/admin/sign-out");
    let left = post(&server, "/admin/sign-out", &leave, &session);
    assert_eq!(location(&left), "/admin/sign-in");
    assert!(field(&left, "set-cookie").is_some_and(|cookie| cookie.ends_with("Max-Age=0")));
    assert_eq!(get(&server, "/admin/log", &session).status, 401);
    server.log.until("\"method\":\"sign out of /admin\",\"credential\":\"admin.token\"");
}

#[test]
fn a_token_of_another_scope_does_not_open_the_room() {
    let folder = folder();
    tokens(folder.path(), &["shop", "admin"]);
    let server = Start::default().set("server.tokens=tokens").serve(folder.path());
    let refused = post(&server, "/admin/sign-in", "token=the+shop+token", "");
    assert!(refused.status == 403 && refused.body.contains("shop-holder"), "{}", refused.body);
    assert_eq!(get(&server, "/admin", "Cookie: quire-token=the+admin+token\r\n").status, 401, "the shop's cookie");
    let session = sign_in(&server, "the admin token");
    assert_eq!(get(&server, "/admin", &session).status, 200);
    assert_eq!(get(&server, "/", &session).status, 401, "the room's cookie");
}

#[tokio::test]
async fn forms_of_others_and_of_no_session_change_nothing() {
    let folder = folder_with("7,The Last One,scarcity,1,9.99\n");
    let server = closed(folder.path());
    let session = sign_in(&server, TOKEN);
    let other = sign_in(&server, TOKEN);
    let path = "/admin/catalogue/restock-all";
    let page = |session: &str| get(&server, "/admin/catalogue", session);
    let own = || form(&page(&session), path) + "&amount=5";
    for site in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: none\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
    ] {
        assert_eq!(post(&server, path, &own(), &format!("{session}{site}")).status, 403, "{site}");
        assert_eq!(post(&server, "/admin/sign-in", "token=x", site).status, 403, "{site}");
    }
    assert_eq!(post(&server, path, "amount=5", &session).status, 403, "without the secret");
    let foreign = form(&page(&other), path) + "&amount=5";
    assert_eq!(post(&server, path, &foreign, &session).status, 403, "the secret of another session");
    let over = post(&server, path, &own(), "");
    assert!(over.status == 401 && over.body.contains("nothing was done"), "{}", over.body);
    for site in [
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
        "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n",
    ] {
        assert_eq!(get(&server, "/admin/log", &format!("{session}{site}")).status, 403, "{site}");
    }
    let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    assert_eq!(get(&server, "/admin/log", &format!("{session}{link}")).status, 200);
    let log = get(&server, "/admin/log", &session).body;
    assert!(!log.contains("kind restock"), "{log}");
    location(&post(&server, path, &own(), &format!("{session}Sec-Fetch-Site: same-origin\r\n")));
    assert!(get(&server, "/admin/log", &session).body.contains("kind restock"));
}

#[test]
fn a_name_that_leads_to_this_machine_opens_no_room() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"GET /admin HTTP/1.1\r\nHost: evil.example\r\nAccept: text/html\r\n\r\n").expect("it is taken");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a line");
    assert!(line.contains(" 421 "), "{line}");
}

#[test]
fn wrong_tokens_are_slowed_and_the_right_one_is_taken() {
    let folder = folder();
    let server = closed(folder.path());
    let slowed = wait_for("a refusal of guesses", || {
        let answer = post(&server, "/admin/sign-in", "token=guess", "");
        (answer.status == 429).then_some(answer)
    });
    assert!(slowed.body.contains("Too many wrong tokens") && field(&slowed, "retry-after") == Some("60"));
    assert_eq!(get(&server, "/admin", &sign_in(&server, TOKEN)).status, 200);
}

fn connected(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// A stream of parts.
struct Parts<S: Read = TcpStream>(BufReader<S>);

impl Parts {
    fn open(server: &Server, query: &str, session: &str) -> Self {
        Self::over(connected(server), query, session)
    }
}

impl<S: Read + Write> Parts<S> {
    fn over(mut stream: S, query: &str, session: &str) -> Self {
        write!(stream, "GET /admin/live?{query} HTTP/1.1\r\nHost: localhost\r\n{session}\r\n").expect("it is taken");
        stream.flush().expect("it is taken");
        Self(BufReader::new(stream))
    }

    fn status(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        line.split(' ').nth(1).expect("a status").to_owned()
    }

    /// The next line with this text; empty if the stream ends before.
    fn line(&mut self, text: &str) -> String {
        let mut line = String::new();
        while self.0.read_line(&mut line).expect("a line") > 0 && !line.contains(text) {
            line.clear();
        }
        line
    }

    /// Reads up to a line with this text; false if the stream ends before.
    fn until(&mut self, text: &str) -> bool {
        !self.line(text).is_empty()
    }
}

#[tokio::test]
async fn what_a_revoked_token_opened_in_the_room_ends() {
    let folder = folder();
    tokens(folder.path(), &["admin"]);
    let file = folder.path().join("tokens");
    let server = Start::default().set("server.tokens=tokens").serve(folder.path());
    let session = sign_in(&server, "the admin token");
    let mut parts = Parts::open(&server, "parts=lost,recent", &session);
    assert!(parts.status() == "200" && parts.until("\"id\":\"lost\"") && parts.until("\"id\":\"recent\""));
    let line = fs::read_to_string(&file).expect("a file").replace("admin-holder", "someone-else");
    fs::write(&file, line).expect("a file");
    server.signal("HUP");
    server.log.until("tokens are loaded again");
    assert!(parts.until("event: over"));
    assert_eq!(get(&server, "/admin", &session).status, 401);
    assert_eq!(Parts::open(&server, "parts=lost", &session).status(), "401");
}

/// Connects over TLS and shows a certificate.
fn connected_with(server: &Server, tls: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    StreamOwned::new(ClientConnection::new(Arc::clone(tls), name).expect("a client"), connected(server))
}

#[test]
fn a_certificate_opens_the_room_and_loses_its_streams_when_it_is_revoked() {
    let folder = folder();
    let own = |file: &str| folder.path().join(file);
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    fs::write(own("cert.pem"), made.cert.pem()).expect("a file");
    fs::write(own("key.pem"), made.signing_key.serialize_pem()).expect("a file");
    let operator = rcgen::generate_simple_self_signed(["operator.example".to_owned()]).expect("a certificate");
    fs::write(own("clients.pem"), operator.cert.pem()).expect("a file");
    fs::write(own("tokens"), "holder admin san:operator.example\n").expect("a file");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let key = PrivateKeyDer::try_from(operator.signing_key.serialize_der()).expect("a key");
    let tls = ClientConfig::builder().with_root_certificates(roots);
    let tls = tls.with_client_auth_cert(vec![CertificateDer::from(operator.cert)], key).expect("a client");
    let tls = Arc::new(tls);
    let server = ["server.tokens=tokens", "tls.certificate=cert.pem", "tls.key=key.pem", "tls.client_ca=clients.pem"]
        .iter()
        .fold(Start::default(), |start, setting| start.set(setting))
        .serve(folder.path());
    let mut stream = connected_with(&server, &tls);
    write!(stream, "GET /admin/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is taken");
    let head: Vec<String> =
        BufReader::new(stream).lines().map_while(Result::ok).take_while(|l| !l.is_empty()).collect();
    let cookie = head.iter().find(|line| line.starts_with("set-cookie: quire-room-")).expect("a session");
    assert!(cookie.ends_with("; Path=/admin; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
    // The cookie is in the answer alone.
    let mut parts = Parts::over(connected_with(&server, &tls), "parts=lost", "");
    assert!(parts.status() == "200" && parts.until("\"id\":\"lost\""));
    fs::write(own("tokens"), "holder admin san:other.example\n").expect("a file");
    server.signal("HUP");
    server.log.until("tokens are loaded again");
    assert!(parts.until("event: over"));
    assert_eq!(Parts::over(connected_with(&server, &tls), "parts=lost", "").status(), "401");
}

#[tokio::test]
async fn a_page_sees_what_happens_and_lets_the_server_stop() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut parts = Parts::open(&server, "parts=recent&done=x", "");
    assert!(parts.status() == "200" && parts.until("\"id\":\"recent\""));
    server.shop().buy(one(BOOK)).await.expect("an answer");
    assert!(parts.until("kind purchase"));
    assert_eq!(get(&server, "/admin/live?parts=nothing", "").status, 400);
    server.stop();
    assert!(!parts.until("event: part"), "it ends");
}

#[tokio::test]
async fn a_filtered_log_follows_the_chosen_entries() {
    let folder = folder_with("7,The Last One,scarcity,1,9.99\n8,Another,scarcity,9,1\n");
    let server = Server::start(folder.path());
    let mut parts = Parts::open(&server, "parts=log&kind=purchase&book=7", "");
    assert!(parts.status() == "200" && parts.until("There is no entry here."));
    server.shop().buy(one(8)).await.expect("an answer");
    server.shop().buy(one(7)).await.expect("an answer");
    assert!(parts.until("kind purchase"));
    let page = get(&server, "/admin/catalogue/book?id=7", "");
    let restock = form(&page, "/admin/catalogue/restock") + "&id=7&amount=5";
    location(&post(&server, "/admin/catalogue/restock", &restock, ""));
    server.shop().buy(one(7)).await.expect("an answer");
    let shown = parts.line("\"id\":\"log\"");
    assert_eq!(shown.matches("kind purchase").count(), 2, "{shown}");
    assert!(!shown.contains("kind restock") && !shown.contains("Another"), "{shown}");
}

#[tokio::test]
async fn streams_of_rooms_are_bounded() {
    /// Most streams of one client: three quarters of all.
    const OF_ONE_MAX: usize = web::ROOM_STREAMS_MAX / 4 * 3;
    let folder = folder();
    let server = Server::start(folder.path());
    let mut open: Vec<Parts> = (0..OF_ONE_MAX).map(|_| Parts::open(&server, "parts=lost", "")).collect();
    assert!(open.iter_mut().all(|parts| parts.status() == "200"));
    let refused = get(&server, "/admin/live?parts=lost", "");
    assert_eq!((refused.status, field(&refused, "retry-after")), (503, Some("30")));
    assert_eq!(get(&server, "/admin", "").status, 200);
    open.truncate(1);
    wait_for("a place", || (Parts::open(&server, "parts=lost", "").status() == "200").then_some(()));
    let books = server.admin().list(ListRequest::default()).await.expect("an answer").into_inner().books;
    assert_eq!(books.len(), 4);
}

#[test]
fn a_key_is_edited_only_while_it_has_the_version_that_the_form_shows() {
    let folder = folder();
    let server = Server::start(folder.path());
    let send = |page: &str, action: &str, fields: &str| {
        let form = form(&get(&server, page, ""), action) + fields;
        location(&post(&server, action, &form, ""))
    };
    let made = send("/admin/keys", "/admin/keys/create", "&key=a/1&value=%7B%22x%22%3A1%7D");
    let page = get(&server, &made, "");
    assert!(page.body.contains("is written, with version") && page.body.contains("&#34;x&#34;: 1"), "{}", page.body);
    let version = between(&page.body, "name=\"version\" value=\"", "\"").to_owned();
    let key = between(&page.body, "name=\"key\" value=\"", "\"").to_owned();
    let write = format!("&key={key}&version={version}&value=two%0D%0Alines");
    let entry = "/admin/keys/entry?key=a%2F1";
    let done = send(entry, "/admin/keys/change", &write);
    assert!(get(&server, &done, "").body.contains("two\nlines"));
    let late = send(entry, "/admin/keys/change", &write.replace("two", "three"));
    let late = get(&server, &late, "").body;
    assert!(late.contains("not the expected one") && !late.contains("three"), "{late}");
    assert!(get(&server, "/admin/keys?prefix=a", "").body.contains("a/1"));
    assert!(get(&server, "/admin/keys?prefix=b", "").body.contains("No key begins with"));
    let version = between(&get(&server, entry, "").body, "name=\"version\" value=\"", "\"").to_owned();
    send(entry, "/admin/keys/change", &format!("&key={key}&version={version}&what=delete"));
    assert_eq!(get(&server, entry, "").status, 404);
}

#[test]
fn a_backup_is_made_and_its_age_is_shown() {
    let folder = folder();
    let server = Server::start(folder.path());
    let page = get(&server, "/admin/backups", "");
    assert!(page.body.contains("none yet"), "{}", page.body);
    assert_eq!(post(&server, "/admin/backups", "", "").status, 403);
    let form = form(&page, "/admin/backups");
    let file = post(&server, "/admin/backups", &form, "");
    assert_eq!(file.status, 200, "{}", file.head);
    assert!(field(&file, "content-disposition").is_some_and(|name| name.starts_with("attachment; filename=\"quire-")));
    assert!(file.body.contains("manifest.json") && file.body.contains("SHA256SUMS"));
    let again = post(&server, "/admin/backups", &form, "");
    assert!(again.status == 409 && again.body.contains("There is one backup"), "{}", again.head);
    let line = "\"method\":\"backup\"";
    server.log.until(line);
    assert_eq!(server.log.text().matches(line).count(), 1);
    wait_for("its age", || get(&server, "/admin/backups", "").body.contains("s old").then_some(()));
}

#[test]
fn a_file_is_verified_as_a_backup_and_a_damaged_one_is_not() {
    let folder = folder();
    let server = Server::start(folder.path());
    let made = run(folder.path(), &["backup", "store.backup", "--data", "data"], "");
    assert!(made.status.success(), "{made:?}");
    let file = fs::read(folder.path().join("store.backup")).expect("a file");
    let page = get(&server, "/admin/backups", "");
    let path = "/admin/backups/verify";
    let verify = |file: &[u8]| upload(&server, path, &form(&page, path), file, "").body;
    let whole = verify(&file);
    assert!(whole.contains("The file is whole") && whole.contains("4 books with"), "{whole}");
    let mut damaged = file.clone();
    damaged[file.len() / 2] ^= 1;
    let found = verify(&damaged);
    assert!(found.contains("The file does not hold: damaged: its part bookstore.db"), "{found}");
    let cut = verify(&file[..file.len() / 2]);
    assert!(cut.contains("The file does not hold: damaged"), "{cut}");
    assert!(verify(b"no backup").contains("this is no file that `quire backup` made"));
    assert_eq!(upload(&server, path, "secret=x&once=y", &file, "").status, 403);
}

#[test]
fn forms_are_bounded_by_bytes() {
    let folder = folder();
    let server = Server::start(folder.path());
    let own = form(&get(&server, "/admin/keys", ""), "/admin/keys/create");
    let create =
        |bytes: usize| post(&server, "/admin/keys/create", &format!("{own}&key=k&value={}", "x".repeat(bytes)), "");
    assert_eq!(create(256 << 10).status, 413);
    assert_eq!(create(100 << 10).status, 303, "too long a value, of which the page tells");
    let path = "/admin/catalogue/import";
    let own = form(&get(&server, path, ""), path);
    assert_eq!(upload(&server, path, &own, &vec![b'x'; 32 << 20], "").status, 413);
    assert_eq!(post(&server, "/shop/buy", &"x".repeat(5000), "").status, 413);
}

#[test]
fn settings_are_shown_with_their_sources_and_without_secrets() {
    let folder = folder();
    let server = closed(folder.path());
    let page = get(&server, "/admin/settings", &sign_in(&server, TOKEN)).body;
    assert!(!page.contains(TOKEN) && page.contains("(set)"), "{page}");
    let row = between(&page, "id=\"limits.connections\"", "</tr>");
    assert!(row.contains("default") && row.contains("open connections, shared by clients"), "{row}");
    assert!(between(&page, "id=\"admin.token\"", "</tr>").contains("--set"), "{page}");
}

#[test]
fn settings_are_read_again_by_a_form() {
    let folder = folder();
    let set = |text: &str| fs::write(folder.path().join("quire.toml"), text).expect("a file");
    let server = Server::start(folder.path());
    let reload = |text: &str| {
        set(text);
        let page = get(&server, "/admin/settings", "");
        let done = post(&server, "/admin/settings/reload", &form(&page, "/admin/settings/reload"), "");
        get(&server, &location(&done), "").body
    };
    let done = reload("[limits]\nquantity = 2000\ntopic_bytes = 17\n");
    assert!(done.contains("limits.quantity=2000 hold from now on. limits.topic_bytes hold from the next"), "{done}");
    assert!(between(&done, "id=\"limits.quantity\"", "</tr>").contains("2000"));
    let wrong = reload("[limits]\nquantity = \"many\"\n");
    assert!(between(&wrong, "class=\"outcome bad\"", "</p>").contains("limits.quantity"), "{wrong}");
}

#[test]
fn records_are_found_by_a_column() {
    let folder = folder();
    fs::write(folder.path().join("rows.csv"), "name,colour\none,<red>\ntwo,blue\nthree,<red>\n").expect("a file");
    let server = Start::default().set("records.csv=rows.csv").serve(folder.path());
    let page = get(&server, "/admin/records?column=colour&value=%3Cred%3E", "").body;
    assert!(page.contains("<strong>2</strong> rows match") && page.contains("three"), "{page}");
    assert!(!page.contains("<red>") && !page.contains("two"), "{page}");
    let wrong = get(&server, "/admin/records?column=size&value=1", "").body;
    assert!(wrong.contains("there is no column"), "{wrong}");
}

#[tokio::test]
async fn books_are_added_edited_delisted_and_restocked_one_by_one() {
    let folder = folder_with("7,The Last One,scarcity,1,9.99\n");
    let server = closed(folder.path());
    let session = sign_in(&server, TOKEN);
    let page = |path: &str| get(&server, path, &session);
    let send = |path: &str, action: &str, fields: &str| {
        let form = form(&page(path), action) + fields;
        let done = location(&post(&server, action, &form, &session));
        (form, page(&done).body)
    };
    let book = "/admin/catalogue/book?id=7";
    let (_, done) = send(book, "/admin/catalogue/restock", "&id=7&amount=5");
    assert!(done.contains("Raised from 1 to 5 copies") && done.contains("<dt>Stock</dt><dd>5</dd>"), "{done}");
    let (_, done) = send(book, "/admin/catalogue/restock", "&id=7&amount=3");
    assert!(done.contains("The book has 5 copies already"), "{done}");
    let (_, done) = send(book, "/admin/catalogue/edit", "&id=7&title=The+%3CFirst%3E&topic=plenty&price=12,50");
    assert!(done.contains("The &#60;First&#62;") && done.contains("plenty") && done.contains("12.50"), "{done}");
    let (_, done) = send(book, "/admin/catalogue/list", "&id=7&listed=no");
    assert!(done.contains("Taken out of the shop") && done.contains("not in the shop"), "{done}");
    assert!(!server.shop().buy(one(7)).await.expect("an answer").into_inner().success);
    assert!(page("/admin/catalogue").body.contains("delisted"));
    let (_, done) = send(book, "/admin/catalogue/list", "&id=7&listed=yes");
    assert!(done.contains("Back in the shop"), "{done}");
    assert!(server.shop().buy(one(7)).await.expect("an answer").into_inner().success);
    let add = "/admin/catalogue/add";
    let (sent, done) = send(add, add, "&title=New&topic=t&stock=3&price=1&id=");
    assert!(done.contains("“New” is added as No. 53574"), "{done}");
    location(&post(&server, add, &sent, &session));
    assert_eq!(page("/admin/catalogue?q=new").body.matches("/admin/catalogue/book?id=").count(), 1, "a double click");
    let (_, done) = send(add, add, "&title=Other&topic=t&stock=3&price=1&id=7");
    assert!(done.contains("No. 7 is “The &#60;First&#62;” already"), "{done}");
    let log = page("/admin/log?book=7").body;
    for kind in ["restock", "edited", "price", "delisted", "listed", "purchase"] {
        assert!(log.contains(&format!("kind {kind}\"")), "no {kind} in\n{log}");
    }
    assert!(log.contains("data-label=\"By\">admin.token<"), "{log}");
    let bought = page("/admin/log?book=7&kind=purchase").body;
    assert!(!bought.contains("kind restock") && bought.contains("kind purchase"), "{bought}");
    assert!(page("/admin/log?to=1980-01-01").body.contains("There is no entry here."));
    let sales = page("/admin/sales?by=book").body;
    assert!(sales.contains("The &#60;First&#62;") && sales.contains("12.50"), "{sales}");
    let file = page("/admin/sales?by=book&as=csv");
    assert!(file.body.contains(",7,The <First>,1,1,12.50,0\n"), "{}", file.body);
}

#[test]
fn an_action_goes_on_without_its_browser_and_a_second_click_waits_for_it() {
    let folder = folder_with("7,The Last One,scarcity,1,9.99\n");
    let server = Server::start(folder.path());
    let add = "/admin/catalogue/add";
    let form = form(&get(&server, add, ""), add) + "&title=New&topic=t&stock=3&price=1&id=";
    let other = other_program(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let mut first = connected(&server);
    let kind = "Content-Type: application/x-www-form-urlencoded";
    write!(first, "POST {add} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\nContent-Length: {}\r\n\r\n{form}", form.len())
        .expect("it is taken");
    server.log.until("\"method\":\"add New\"");
    drop(first);
    let shown = thread::scope(|scope| {
        let second = scope.spawn(|| location(&post(&server, add, &form, "")));
        wait_for("the second click", || (metric(server.address, "quire_connections") >= 2).then_some(()));
        other.execute_batch("COMMIT").expect("the lock is given back");
        get(&server, &second.join().expect("an answer"), "").body
    });
    assert!(shown.contains("“New” is added as No. "), "{shown}");
    assert_eq!(get(&server, "/admin/catalogue?q=new", "").body.matches("/admin/catalogue/book?id=").count(), 1);
    assert_eq!(server.log.text().matches("\"method\":\"add New\"").count(), 1);
}

/// A form with a file, as a browser sends it.
fn upload(server: &Server, path: &str, form: &str, file: &[u8], session: &str) -> Page {
    let fields = form.split('&').filter_map(|field| field.split_once('='));
    let part = |(name, value): (&str, &str)| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let fields: String = fields.map(part).collect();
    let before =
        format!("{fields}--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"books.csv\"\r\n\r\n");
    let body = [before.as_bytes(), file, b"\r\n--b--\r\n"].concat();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n{session}Content-Length: {}\r\n\
         Content-Type: multipart/form-data; boundary=b\r\nConnection: close\r\n\r\n",
        body.len()
    );
    ask(server.address, [head.as_bytes(), &body].concat())
}

#[tokio::test]
async fn an_import_says_first_what_it_would_do_and_does_it_once() {
    let folder = folder_with("7,The Last One,scarcity,1,9.99\n8,Unchanged,scarcity,2,1\n");
    let server = closed(folder.path());
    let session = sign_in(&server, TOKEN);
    let path = "/admin/catalogue/import";
    let csv = "id,title,topic,stock,price\n7,The Last One,scarcity,4,9.99\n8,Unchanged,scarcity,2,1\n9,Added,t,1,1\nx,y,z,1,1\n";
    assert_eq!(upload(&server, path, "secret=x&once=y", csv.as_bytes(), &session).status, 403);
    let own = form(&get(&server, path, &session), path);
    let shown = upload(&server, path, &own, csv.as_bytes(), &session);
    for (name, count) in [("Add", 1), ("Change", 1), ("Leave as they are", 1), ("Leave out", 1)] {
        assert!(shown.body.contains(&format!("<dt>{name}</dt><dd>{count}</dd>")), "{name} in\n{}", shown.body);
    }
    let books = server_books(&server, &session);
    assert!(books.contains("data-label=\"Stock\"><span class=\"stock low\">1<") && !books.contains("Added"), "{books}");
    let apply = "/admin/catalogue/import/apply";
    let plan = between(&shown.body, "name=\"plan\" value=\"", "\"");
    let confirm = format!("{}&plan={plan}", form(&shown, apply));
    let done = location(&post(&server, apply, &confirm, &session));
    let shown = get(&server, &done, &session).body;
    assert!(shown.contains("Imported: 1 added, 1 changed, 1 unchanged, 1 left out."), "{shown}");
    assert_eq!(location(&post(&server, apply, &confirm, &session)), done);
    let file = get(&server, "/admin/catalogue/export", &session);
    assert!(file.body.contains("7,The Last One,scarcity,4,9.99,yes\n"), "{}", file.body);
    let log = get(&server, "/admin/log/export?as=json", &session).body;
    assert!(log.lines().any(|line| line.contains("\"actor\":\"admin.token\"") && line.contains("\"book\":9")), "{log}");
    assert!(log.contains("\"unit\":\"copies\""), "{log}");
    assert!(get(&server, "/admin/log/export?as=csv&book=9", &session).body.contains(",added,9,"));
}

fn server_books(server: &Server, session: &str) -> String {
    get(server, "/admin/catalogue", session).body
}
