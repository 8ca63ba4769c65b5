//! A topic too large for one message: refused as one message, complete by pages and as a stream.

use std::fmt::Write as _;

use bookstore::grpc::wire::{BookListReply, BookTopicRequest, ListTopicsReply, ListTopicsRequest};
use quire_rpc::Code;

use crate::common::{
    http, poll,
    process::{Server, Start},
    store::{self, folder, folder_with},
};

const TOPIC: &str = "a crowd";
/// More than a page of 1000, and several streamed messages.
const BOOKS: i32 = 7000;
const FIRST: i32 = 100_000;

/// `more` makes titles longer.
fn crowd_with(more: &str) -> tempfile::TempDir {
    let mut rows = String::new();
    for id in FIRST..FIRST + BOOKS {
        writeln!(rows, "{id},The Book of the Number {id}{more},{TOPIC},3,9.99").expect("room");
    }
    folder_with(&rows)
}

fn crowd() -> tempfile::TempDir {
    crowd_with("")
}

fn page(page_size: i32, page_token: &str) -> BookTopicRequest {
    BookTopicRequest { topic: TOPIC.to_owned(), page_size, page_token: page_token.to_owned() }
}

fn ids(reply: &BookListReply) -> impl Iterator<Item = i32> {
    reply.books.iter().map(|book| book.id)
}

/// Reads every page in order; `between` runs after each.
async fn by_pages(server: &Server, size: i32, mut between: impl FnMut()) -> Vec<i32> {
    let (shop, mut found, mut token) = (server.shop(), Vec::new(), String::new());
    loop {
        let reply = shop.search(page(size, &token)).await.expect("a page").into_inner();
        assert!(reply.success && reply.message.is_empty());
        found.extend(ids(&reply));
        token = reply.next_page_token;
        if token.is_empty() {
            return found;
        }
        between();
    }
}

async fn is_whole_by_pages_and_as_a_stream(start: Start) {
    let folder = crowd();
    let server = start.set("limits.message_bytes=100000").serve(folder.path());
    let refusal = server.shop().search(page(0, "")).await.expect_err("too large");
    let message = "the answer is larger than one message, and the server's limit limits.message_bytes is 100000: set \
                   page_size and ask for pages, or call SearchStream";
    assert_eq!((refusal.code(), refusal.message()), (Code::ResourceExhausted, message));
    assert_eq!(refusal.metadata().get("grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(http::refused(server.address, "message_bytes"), 1);
    let all: Vec<i32> = (FIRST..FIRST + BOOKS).collect();
    assert_eq!(by_pages(&server, 999, || {}).await, all);
    // A page larger than a message ends early and names the start of the next.
    assert_eq!(by_pages(&server, 1000, || {}).await, all);
    for (size, token) in [(0, String::new()), (700, String::new())] {
        let mut stream = server.shop().search_stream(page(size, &token)).await.expect("a stream").into_inner();
        let (mut found, mut messages) = (Vec::new(), 0);
        while let Some(reply) = stream.message().await.expect("a message") {
            assert!(reply.success && reply.books.len() <= 1000);
            found.extend(ids(&reply));
            messages += 1;
            assert_eq!(reply.next_page_token.is_empty(), found.len() == all.len());
        }
        assert!(messages >= 7, "{messages}");
        assert_eq!(found, all);
    }
}

#[tokio::test]
async fn a_topic_larger_than_a_message_is_whole_by_pages_and_as_a_stream() {
    is_whole_by_pages_and_as_a_stream(Start::default()).await;
}

#[tokio::test]
async fn so_it_is_when_reads_go_to_the_database() {
    is_whole_by_pages_and_as_a_stream(Start::default().set("catalogue.reads=database")).await;
}

#[tokio::test]
async fn pages_go_on_where_they_were_while_books_come_and_go() {
    let folder = crowd();
    let server = Server::start(folder.path());
    let mut changes = vec![
        format!("DELETE FROM book WHERE id = {}", FIRST + 999),
        format!(
            "INSERT INTO book (id, title, topic, stock, price_cents) VALUES ({}, 'The Last', '{TOPIC}', 1, 100)",
            FIRST + BOOKS
        ),
        format!("INSERT INTO book (id, title, topic, stock, price_cents) VALUES (1, 'The First', '{TOPIC}', 1, 100)"),
    ];
    let other = store::other_program(folder.path());
    let found = by_pages(&server, 1000, || {
        for sql in changes.drain(..) {
            assert_eq!(other.execute(&sql, ()).expect("the change is taken"), 1);
        }
        let seen = || {
            let books = format!("quire_books {}", BOOKS + 5);
            http::get(server.address, "/metrics").body.contains(&books).then_some(())
        };
        crate::common::wait_for("the changes", seen);
    })
    .await;
    // The last book of the first page was deleted, and one was inserted before it: neither moves the others.
    assert_eq!(found, (FIRST..=FIRST + BOOKS).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stream_goes_on_from_a_token_and_shows_one_catalogue() {
    let folder = crowd();
    let server = Server::start(folder.path());
    let first = server.shop().search(page(1, "")).await.expect("a page").into_inner();
    let mut stream =
        server.shop().search_stream(page(10, &first.next_page_token)).await.expect("a stream").into_inner();
    let mut found: Vec<i32> = ids(&stream.message().await.expect("a message").expect("books")).collect();
    let other = store::other_program(folder.path());
    assert_eq!(other.execute("DELETE FROM book WHERE topic = 'a crowd'", ()).expect("taken").cast_signed(), 7000);
    let gone = async || {
        let reply = server.shop().search(page(1, "")).await.expect("an answer").into_inner();
        (reply.message == "no book has the topic 'a crowd'").then_some(())
    };
    poll("the end of the topic", gone).await;
    while let Some(reply) = stream.message().await.expect("a message") {
        found.extend(ids(&reply));
    }
    assert_eq!(found, (FIRST + 1..FIRST + BOOKS).collect::<Vec<_>>());
    let mut none = server.shop().search_stream(page(0, "")).await.expect("a stream").into_inner();
    let reply = none.message().await.expect("a message").expect("one");
    assert_eq!((reply.success, &*reply.message), (true, "no book has the topic 'a crowd'"));
    assert!(none.message().await.expect("the end").is_none());
}

#[tokio::test]
async fn a_page_that_cannot_be_is_refused_by_name() {
    // More than a client buffers.
    let folder = crowd_with(&" and on".repeat(200));
    let server = Start::default().set("limits.search_streams=1").serve(folder.path());
    let shop = server.shop();
    let token = shop.search(page(1, "")).await.expect("a page").into_inner().next_page_token;
    let foreign = BookTopicRequest { topic: "college life".to_owned(), ..page(1, &token) };
    for request in [page(1, "next"), page(0, &token[1..]), foreign] {
        let status = shop.search(request.clone()).await.expect_err("a refusal");
        let message = format!("page_token is {}; it must be empty, or next_page_token of the page", request.page_token);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(&message), "{status:?}");
        assert_eq!(shop.search_stream(request).await.expect_err("a refusal").code(), Code::InvalidArgument);
    }
    let status = shop.search(page(-1, "")).await.expect_err("a refusal");
    assert_eq!(status.message(), "page_size is -1; it must be 0 for the default, or a positive number");
    let status = shop.search(page(1001, "")).await.expect_err("a refusal");
    assert_eq!(status.message(), "the server's limit limits.page_size is 1000: ask for a smaller page");
    let held = shop.search_stream(page(0, "")).await.expect("a stream");
    let status = shop.search_stream(page(1, "")).await.expect_err("a refusal");
    let message = "the server's limit limits.search_streams is 1: end another stream or search by pages; a client gets three \
                   quarters of what others leave";
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, message));
    drop(held);
    poll("the stream's place", async || shop.search_stream(page(1, "")).await.ok()).await;
}

#[tokio::test]
async fn topics_are_listed_by_pages_and_found_by_a_text_near_them() {
    let folder = folder_with("1,Bread,cooking,1,1.00\n2,Cake,cooking,1,1.00\n3,Rhymes,poetry,1,1.00\n");
    let server = Server::start(folder.path());
    let ask = async |page_size, page_token: &str, near: &str| {
        let request = ListTopicsRequest { page_size, page_token: page_token.to_owned(), near: near.to_owned() };
        server.shop().list_topics(request).await.map(quire_rpc::Response::into_inner)
    };
    let names = |reply: &ListTopicsReply| -> Vec<(String, i64)> {
        reply.topics.iter().map(|topic| (topic.name.clone(), topic.books)).collect()
    };
    let all = ask(0, "", "").await.expect("topics");
    let expected = [("college life", 2), ("cooking", 2), ("distributed systems", 2), ("poetry", 1)];
    assert_eq!(names(&all), expected.map(|(name, books)| (name.to_owned(), books)));
    assert!(all.next_page_token.is_empty());
    let first = ask(2, "", "").await.expect("topics");
    let second = ask(2, &first.next_page_token, "").await.expect("topics");
    assert_eq!((&first.topics[..], &second.topics[..]), all.topics.split_at(2));
    assert!(second.next_page_token.is_empty());
    for (near, expected) in [("Cookin", "cooking"), ("systems", "distributed systems"), ("poerty", "poetry")] {
        let found = ask(0, "", near).await.expect("topics");
        assert_eq!(found.topics.first().map(|topic| &*topic.name), Some(expected), "{near}");
    }
    assert!(ask(0, "", "astronomy").await.expect("topics").topics.is_empty());
    for (size, token, near) in [(0, "cooking", ""), (0, &*first.next_page_token, "x"), (-1, "", "")] {
        assert_eq!(ask(size, token, near).await.expect_err("a refusal").code(), Code::InvalidArgument);
    }
    assert_eq!(ask(0, "", &"x".repeat(257)).await.expect_err("a refusal").code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_store_without_books_has_no_topics() {
    let folder = folder();
    let server = Server::start(folder.path());
    store::other_program(folder.path()).execute("DELETE FROM book", ()).expect("taken");
    let none = async || {
        let reply = server.shop().list_topics(ListTopicsRequest::default()).await.expect("topics").into_inner();
        (reply == ListTopicsReply::default()).then_some(())
    };
    poll("the end of all topics", none).await;
}

#[tokio::test]
async fn answers_are_compressed_if_the_operator_and_the_client_want_it() {
    let folder = crowd();
    let mut bytes = Vec::new();
    for compression in ["off", "gzip", "zstd"] {
        let server = Start::default().set(&format!("server.compression={compression}")).serve(folder.path());
        let shop = server.shop();
        let reply = shop.search(page(1000, "")).await.expect("a page").into_inner();
        assert_eq!(reply.books.len(), 1000);
        bytes.push(shop.channel().traffic().received_bytes);
    }
    assert!(bytes[0] > 3 * bytes[1] && bytes[0] > 3 * bytes[2], "{bytes:?}");
}
