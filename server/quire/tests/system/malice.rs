//! A server that sends terminal escape sequences, control characters and direction changes. Clients display them
//! escaped, never raw.

use std::{future::ready, net::SocketAddr, pin::Pin, thread};

use bookstore::grpc::wire::{
    Book, BookListReply, BookTopicRequest, BuyBookReply, HelloReply, HelloRequest, ItemNumberRequest, ListTopicsReply,
    ListTopicsRequest, ReceiptReply, ReceiptRequest, ReservationReply, ReservationRequest, ReserveRequest, Topic,
    book_store_server::{BookStore, BookStoreServer},
};
use quire_rpc::{
    Encoded, Request, Response, Server, Status, Stream,
    server::{Answer, Call, Later},
};

use super::terminal::{QUIRE, Terminal};
use crate::common::{
    process,
    store::{self, folder},
};

/// Clears the screen, sets the title, moves up, reverses the direction, and adds a forged line.
const EVIL: &str = "evil\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}1A\u{202e}\u{2066}\r\nquire: all is well";

struct Malicious;

fn book() -> Book {
    Book { id: 1, title: EVIL.to_owned(), topic: EVIL.to_owned(), ..Book::default() }
}

impl BookStore for Malicious {
    async fn hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(HelloReply { hello_message: EVIL.to_owned() }))
    }

    fn search(&self, call: Call<'_, BookTopicRequest>) -> Answer<impl Later + use<>> {
        let reply = BookListReply { success: true, books: vec![book()], ..BookListReply::default() };
        call.later(|_| ready(Ok(Response::new(Encoded::of(reply)))))
    }

    type SearchStreamStream = Pin<Box<dyn Stream<Item = Result<Encoded, Status>> + Send>>;

    /// As on a server without this method.
    async fn search_stream(&self, _: Request<BookTopicRequest>) -> Result<Response<Self::SearchStreamStream>, Status> {
        Err(Status::unimplemented(EVIL))
    }

    async fn list_topics(&self, _: Request<ListTopicsRequest>) -> Result<Response<ListTopicsReply>, Status> {
        let topics = vec![Topic { name: EVIL.to_owned(), books: 1 }];
        Ok(Response::new(ListTopicsReply { topics, ..ListTopicsReply::default() }))
    }

    async fn receipt(&self, _: Request<ReceiptRequest>) -> Result<Response<ReceiptReply>, Status> {
        Err(Status::unimplemented(EVIL))
    }

    async fn reserve(&self, _: Request<ReserveRequest>) -> Result<Response<ReservationReply>, Status> {
        Err(Status::unimplemented(EVIL))
    }

    async fn confirm(&self, _: Request<ReservationRequest>) -> Result<Response<ReservationReply>, Status> {
        Err(Status::unimplemented(EVIL))
    }

    async fn release(&self, _: Request<ReservationRequest>) -> Result<Response<ReservationReply>, Status> {
        Err(Status::unimplemented(EVIL))
    }

    fn lookup(&self, call: Call<'_, ItemNumberRequest>) -> Answer<impl Later + use<>> {
        call.later(|_| ready(Err(Status::internal(EVIL))))
    }

    async fn buy(&self, _: Request<ItemNumberRequest>) -> Result<Response<BuyBookReply>, Status> {
        Ok(Response::new(BuyBookReply { message: EVIL.to_owned(), ..BuyBookReply::default() }))
    }
}

/// Serves until the test's process ends.
fn serve() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let server = Server::builder().add_service(BookStoreServer::new(Malicious)).build();
            server.serve(listener, std::future::pending()).await.expect("it serves");
        });
    });
    address
}

/// Asserts that displayed server text is harmless.
#[track_caller]
fn harmless(shown: &str) {
    assert!(shown.contains("evil"), "{shown:?}");
    let bad = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!shown.contains(bad), "{shown:?}");
    assert!(!shown.lines().any(|line| line.starts_with("quire: all is well")), "{shown:?}");
}

#[test]
fn nothing_that_a_server_says_acts_on_a_terminal() {
    let address = serve().to_string();
    let folder = folder();
    for command in ["ping", "search x", "topics", "topics x", "lookup 1", "buy 1"] {
        for json in [false, true] {
            let mut words = vec!["client", &address];
            words.extend(command.split(' '));
            words.extend(json.then_some("--json"));
            let done = process::run(folder.path(), &words, "");
            harmless(&String::from_utf8([done.stdout, done.stderr].concat()).expect("text"));
        }
    }
}

#[test]
fn nor_does_it_at_a_prompt() {
    let folder = folder();
    let line = format!("{QUIRE} client {}", serve());
    let Some(mut terminal) = Terminal::run(folder.path(), &line) else { return };
    terminal.screen.until("quire client> ");
    for command in ["search x", "lookup 1", "buy 1"] {
        // The screen also shows the typed text; the answer comes after its line.
        let shown = terminal.command(&format!("{command}\r"), "evil");
        assert!(shown.contains("evil\\u{1b}[2J"), "{shown:?}");
        assert!(!shown.contains("\u{1b}[2J") && !shown.contains('\u{202e}') && !shown.contains('\u{9b}'), "{shown:?}");
    }
    terminal.press("\u{4}");
    assert_eq!(terminal.ended(), Some(1), "the worst of them was refused");
}

#[test]
fn the_console_shows_a_title_as_it_is() {
    let folder = folder();
    process::Server::start(folder.path()).stop();
    // An import would refuse it; another program may write anything.
    let title = "bad\u{1b}[2J\u{202e}title";
    let other = store::other_program(folder.path());
    other
        .execute("INSERT INTO book (id, title, topic, stock, price_cents) VALUES (9, ?1, 't', 1, 100)", [title])
        .expect("the change is taken");
    let mut server = process::Server::start(folder.path());
    let table = server.console("list", "bad");
    assert!(table.contains("bad\\u{1b}[2J\\u{202e}title"), "{table:?}");
}
