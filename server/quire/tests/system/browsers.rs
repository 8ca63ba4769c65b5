//! Web pages without permission can do nothing to a server on the same machine.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use bookstore::grpc::wire::{HelloRequest, book_store_client::BookStoreClient};
use quire_rpc::client::{Channel, Protocol, Settings};

use crate::common::{
    PATIENCE, http,
    process::{Server, Start},
    store::{BOOK, folder, one},
};

/// Status and full text of the answer to a raw request.
fn sent(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer)
}

fn get(address: SocketAddr, path: &str, fields: &str) -> u16 {
    sent(address, &format!("GET {path} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n")).0
}

#[test]
fn a_page_whose_name_leads_to_this_machine_reads_nothing() {
    let folder = folder();
    let server = Start::default().set("server.hosts=Quire.local").serve(folder.path());
    let address = server.address;
    let port = address.port();
    for path in ["/metrics", "/search", "/", "/openapi", "/healthz"] {
        for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example"]
        {
            assert_eq!(get(address, path, &format!("Host: {host}\r\n")), 421, "{path} {host}");
        }
    }
    for host in ["localhost", "127.0.0.1", "127.0.0.9", "[::1]", "quire.local", "QUIRE.LOCAL"] {
        assert_eq!(get(address, "/metrics", &format!("Host: {host}:{port}\r\n")), 200, "{host}");
    }
    let absolute = "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(sent(address, absolute).0, 421);
}

#[test]
fn a_request_of_http11_names_one_host() {
    let folder = folder();
    let server = Server::start(folder.path());
    assert_eq!(get(server.address, "/healthz", ""), 400);
    assert_eq!(get(server.address, "/healthz", "Host: localhost\r\nHost: localhost\r\n"), 400);
    assert_eq!(get(server.address, "/healthz", "Host: localhost\r\nHost: evil.example\r\n"), 400);
    assert_eq!(sent(server.address, "GET /healthz HTTP/1.0\r\n\r\n").0, 200, "HTTP/1.0 had no Host");
}

#[tokio::test]
async fn only_grpc_itself_may_name_any_authority() {
    let folder = folder();
    let server = Server::start(folder.path());
    let hello = async |protocol: Protocol, authority: &str| {
        let builder = Channel::builder(&format!("http://{}", server.address)).expect("an address");
        let settings = Settings { protocol, ..Settings::default() };
        let channel = builder.settings(settings).authority(authority).connect_lazy().expect("a channel");
        BookStoreClient::new(channel).hello(HelloRequest::default()).await.is_ok()
    };
    assert!(hello(Protocol::Grpc, "any.name.of.a.proxy").await);
    for protocol in [Protocol::GrpcWeb, Protocol::Connect] {
        assert!(hello(protocol, "localhost:1").await, "{protocol:?}");
        assert!(!hello(protocol, "evil.example").await, "{protocol:?}");
    }
}

/// Methods with side effects, and a message for each.
const CHANGES: [(&str, &str); 11] = [
    ("bookstore.BookStore/Buy", r#"{"id":12365}"#),
    ("bookstore.Admin/Restock", r#"{"amount":5000}"#),
    ("bookstore.Admin/UpdatePrice", r#"{"id":12365,"priceCents":"1"}"#),
    ("io.grpc.KeyValueService/Create", r#"{"key":"aw==","value":"dg=="}"#),
    ("io.grpc.KeyValueService/Update", r#"{"key":"aw==","value":"dg=="}"#),
    ("io.grpc.KeyValueService/Delete", r#"{"key":"aw=="}"#),
    ("io.grpc.KeyRangeService/Put", r#"{"key":"aw==","value":"dg=="}"#),
    ("RPCGame/Try", r#"{"serial":"1","name":"n","count":"1"}"#),
    ("RPCGame/Done", "{}"),
    ("RPCGameStream/Play", "{}"),
    ("records", "{}"),
];

#[tokio::test]
async fn no_request_that_a_page_may_send_without_leave_changes_anything() {
    let folder = folder();
    let server = Server::start(folder.path());
    let stock = async || {
        let found = server.shop().lookup(one(BOOK)).await.expect("an answer").into_inner().book.expect("the book");
        (found.stock, found.price_cents)
    };
    let before = stock().await;
    let before_calls = http::metric(server.address, "quire_kv_entries");
    let simple = [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: text/plain;charset=application/json\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: multipart/form-data; boundary=b\r\n",
        "Content-Type: text/plain, application/json\r\n",
        "Content-Type: \r\n",
    ];
    let common = "Host: localhost\r\nOrigin: https://evil.example\r\nConnection: close\r\n";
    for (path, body) in CHANGES {
        for kind in simple {
            let request =
                format!("POST /{path} HTTP/1.1\r\n{common}{kind}Content-Length: {}\r\n\r\n{body}", body.len());
            let (status, answer) = sent(server.address, &request);
            assert!((400..500).contains(&status), "{kind}{path}: {answer}");
            assert!(!answer.to_lowercase().contains("access-control-allow"), "{answer}");
        }
        let query = "connect=v1&encoding=json&message=%7B%22id%22%3A12365%7D";
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            let (status, answer) = sent(server.address, &format!("{method} /{path}?{query} HTTP/1.1\r\n{common}\r\n"));
            assert!((400..500).contains(&status), "{method} {path}: {answer}");
        }
    }
    assert_eq!(stock().await, before);
    assert_eq!(http::metric(server.address, "quire_kv_entries"), before_calls);
}
