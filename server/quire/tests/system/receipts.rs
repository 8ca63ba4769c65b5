//! Receipts and the signed log as shoppers, operators and strangers get them.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use bookstore::grpc::wire::{ItemNumberRequest, ReceiptReply, ReceiptRequest};
use quire_rpc::Code;
use serde_json::Value;

use super::storefront;
use crate::common::{
    PATIENCE, http,
    process::{self, Server, Start},
    store::{BOOK, folder, keyed, one},
};

async fn receipt(server: &Server, number: i64, key: &str) -> ReceiptReply {
    let request = ReceiptRequest { number, idempotency_key: key.as_bytes().to_vec() };
    server.shop().receipt(request).await.expect("an answer").into_inner()
}

async fn buy(server: &Server, request: ItemNumberRequest) -> i64 {
    server.shop().buy(request).await.expect("an answer").into_inner().purchase_number
}

/// Status, head and body of a GET with these fields.
fn bytes(server: &Server, path: &str, fields: &str) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n{fields}Connection: close\r\n\r\n", server.address)
        .expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head, answer[end + 4..].to_vec())
}

#[tokio::test]
async fn a_receipt_is_checked_without_the_server() {
    let folder = folder();
    let server = Server::start(folder.path());
    let number = buy(&server, keyed(BOOK, "mine")).await;
    let ReceiptReply { success, receipt, log_key, .. } = receipt(&server, number, "mine").await;
    assert!(success);
    assert_eq!(http::get(server.address, "/log/key").body.trim(), log_key);
    server.stop();
    fs::write(folder.path().join("my.tlog-proof"), &receipt).expect("a file");
    fs::write(folder.path().join("shop.key"), &log_key).expect("a file");
    for key in [log_key.as_str(), "shop.key"] {
        let done = process::run(folder.path(), &["receipt", "my.tlog-proof", "--key", key], "");
        let shown = String::from_utf8_lossy(&done.stdout);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        assert!(shown.contains(&format!("number    {number}\n")) && shown.contains("kind      purchase"), "{shown}");
    }
    let done = process::run(folder.path(), &["receipt", "-", "--json", "--key", &log_key], &receipt);
    let shown: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!((&shown["book"], &shown["quantity"]), (&BOOK.into(), &1.into()), "{shown}");
    let changed = receipt.replacen("extra AQ", "extra AR", 1);
    let other = log_key.replace("quire/", "other/");
    for (text, key, code, reason) in [
        (&*changed, &*log_key, 1, "the entry or a hash was changed"),
        ("hello\n", &*log_key, 1, "not a proof of the form"),
        (&*receipt, &*other, 2, "a part of it was changed"),
        (&*receipt, "nothing", 2, "neither a file nor a public key"),
    ] {
        let done = process::run(folder.path(), &["receipt", "-", "--key", key], text);
        let shown = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(code) && shown.contains(reason), "{reason}: {done:?}");
    }
}

#[tokio::test]
async fn a_receipt_needs_the_key_of_the_purchase() {
    let folder = folder();
    let server = Server::start(folder.path());
    let number = buy(&server, keyed(BOOK, "mine")).await;
    let unkeyed = buy(&server, one(BOOK)).await;
    for (number, key) in [(number, "yours"), (unkeyed, "mine"), (unkeyed + 1, "mine"), (-1, "mine")] {
        let reply = receipt(&server, number, key).await;
        assert!(!reply.success && reply.receipt.is_empty(), "{reply:?}");
        assert_eq!(reply.message, format!("there is no purchase {number} with this key"));
    }
    let request = ReceiptRequest { number: unkeyed, idempotency_key: Vec::new() };
    let refused = server.shop().receipt(request).await.expect_err("no key");
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn the_signed_log_is_at_the_paths_of_tiled_logs() {
    let folder = folder();
    let server = Server::start(folder.path());
    let number = buy(&server, keyed(BOOK, "mine")).await;
    let checkpoint = http::get(server.address, "/log/checkpoint");
    assert_eq!(checkpoint.status, 200);
    assert!(checkpoint.head.to_lowercase().contains("cache-control: no-cache"), "{}", checkpoint.head);
    assert_eq!(checkpoint.body.lines().nth(1), Some(&*number.to_string()));
    let (status, head, tile) = bytes(&server, &format!("/log/tile/0/000.p/{number}"), "");
    assert_eq!((status, tile.len()), (200, usize::try_from(number).expect("small") * 32));
    assert!(head.contains("immutable") && head.contains("application/octet-stream"), "{head}");
    for path in ["0/000", "1/000", "0/000.p/9", "0/001.p/1", "00/000.p/1", "x", "%65ntries/000.p/1", "0/000.p/1/"] {
        let (status, head, _) = bytes(&server, &format!("/log/tile/{path}"), "");
        assert_eq!(status, 404, "{path}");
        assert!(head.contains("no-store"), "a cache must not keep it: {head}");
    }
    let (status, _, entries) = bytes(&server, &format!("/log/tile/entries/000.p/{number}"), "");
    assert!(status == 200 && entries.len() > 10);
    assert_eq!(bytes(&server, "/log/tile/entries/001", "").0, 404);
    assert!(http::get(server.address, "/").body.contains("/log/checkpoint"));
}

#[tokio::test]
async fn entries_are_for_operators_and_the_rest_for_shoppers() {
    let folder = folder();
    let token = |scope: &str| {
        let made = process::run(folder.path(), &["token", "new", "--scope", scope, "--name", scope], "");
        let text = String::from_utf8(made.stdout).expect("text");
        let (token, line) = text.trim_end().split_once('\n').expect("two lines");
        (token.to_owned(), line.to_owned())
    };
    let ((shopper, first), (operator, second)) = (token("shop"), token("admin"));
    fs::write(folder.path().join("tokens"), format!("{first}\n{second}\n")).expect("a file");
    for is_open in [false, true] {
        let server =
            Start::default().set("server.tokens=tokens").set(&format!("shop.open={is_open}")).serve(folder.path());
        let status = |path: &str, token: &str| {
            let field = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
            bytes(&server, path, &field).0
        };
        for path in ["/log/checkpoint", "/log/key", "/log/tile/0/000.p/1"] {
            assert_eq!(status(path, &shopper), 200, "{path}");
            assert_eq!(status(path, ""), if is_open { 200 } else { 401 }, "{path}");
        }
        for path in ["/log/tile/entries/000.p/1", "/log/tile/entries/x000/000.p/1", "/log/tile/entries/"] {
            assert_eq!(status(path, ""), 401, "{path}");
            assert_eq!(status(path, &shopper), 403, "{path}");
        }
        assert_eq!(status("/log/tile/entries/000.p/1", &operator), 200);
        server.stop();
    }
}

#[tokio::test]
async fn the_receipt_of_the_storefront_links_its_proof() {
    let folder = folder();
    let server = Server::start(folder.path());
    let page = storefront::get(&server, &format!("/shop/book?id={BOOK}"), "");
    let key = storefront::between(&page.body, "name=\"key\" value=\"", "\"").to_owned();
    let bought = storefront::post(&server, "/shop/buy", &format!("book={BOOK}&key={key}"), "");
    let place = storefront::between(&bought.head.to_lowercase(), "location: ", "\r\n").to_owned();
    assert!(place.starts_with("/shop/receipt"), "{}", bought.head);
    let at = bought.head.to_lowercase().find("location: ").expect("a place") + 10;
    let receipt = storefront::get(&server, &bought.head[at..at + place.len()], "");
    let path = storefront::between(&receipt.body, "<a href=\"/shop/receipt/proof", "\"")
        .replace("&amp;", "&")
        .replace("&#38;", "&");
    let proof = storefront::get(&server, &format!("/shop/receipt/proof{path}"), "");
    assert_eq!(proof.status, 200, "{}", proof.body);
    assert!(proof.head.to_lowercase().contains("attachment; filename=\"receipt-"), "{}", proof.head);
    let log_key = http::get(server.address, "/log/key").body;
    let done = process::run(folder.path(), &["receipt", "-", "--key", log_key.trim()], &proof.body);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let wrong = storefront::get(&server, "/shop/receipt/proof?number=1&key=x", "");
    assert_eq!(wrong.status, 404);
}

#[test]
fn a_name_that_a_key_cannot_have_is_refused() {
    let folder = folder();
    let done = process::run(folder.path(), &["serve", "--set", "ledger.origin=my shop"], "");
    let shown = String::from_utf8_lossy(&done.stderr);
    assert!(
        !done.status.success() && shown.contains("ledger.origin") && shown.contains("shop.example/log"),
        "{done:?}"
    );
}
