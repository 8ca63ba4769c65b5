//! The HTTP load against servers by others: hyper, Python's, and bytes written by hand.

mod bad_input;
mod http2;
mod judge;
mod server;

use std::io::{Read as _, Write as _};
use std::sync::mpsc;
use std::time::Duration;

use bench::workload::Session as _;
use bytes::Bytes;
use http::{Method, Response};
use http_body_util::Full;

use server::{Client, Server, answer, certificate, read_head, says, script, turn};

/// Long enough for any answer that will come.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn requests_follow_each_other_on_one_connection() {
    let server = Server::http1(|_| answer(200, "hello"));
    let client = Client::new(&[&server.url("/")]);
    client.request(0);
    let before = server.connections();
    for number in 1..50 {
        let answer = client.request(number);
        assert_eq!(client.label(&answer), "200");
        assert!(!answer.ending.is_error && answer.first_byte_at.is_some());
    }
    assert_eq!(server.connections(), before);
    assert_eq!(server.requests.lock().unwrap().len(), 50);
}

#[test]
fn a_server_that_closes_after_each_answer_gets_a_new_connection_for_the_next() {
    let server = Server::http1(|_| Response::builder().header("connection", "close").body(Full::default()).unwrap());
    let client = Client::new(&[&server.url("/")]);
    client.request(0);
    let before = server.connections();
    for number in 1..5 {
        assert_eq!(client.ending(number), "200");
    }
    assert_eq!(server.connections(), before + 4);
}

#[test]
fn statuses_are_told_apart_and_errors_begin_at_400() {
    let server = Server::http1(|got| answer(got.uri().query().unwrap().parse().unwrap(), ""));
    let client = Client::new(&[&server.url("/?{{number}}")]);
    for (status, is_error) in
        [(200, false), (301, false), (399, false), (400, true), (404, true), (503, true), (999, true)]
    {
        let answer = client.request(status);
        assert_eq!((client.label(&answer), answer.ending.is_error), (status.to_string(), is_error));
    }
}

#[test]
fn answers_without_a_body_leave_the_connection_in_step() {
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304)] {
        let server = Server::http1(move |got| {
            let body = if got.method() == Method::HEAD { "not sent" } else { "" };
            answer(status, body)
        });
        let client = Client::new(&[&server.url("/"), "-X", method]);
        client.request(0);
        let before = server.connections();
        for number in 1..4 {
            assert_eq!(client.ending(number), status.to_string());
        }
        assert_eq!(server.connections(), before);
    }
}

#[test]
fn chunks_and_bodies_up_to_the_end_of_the_connection_are_read_whole() {
    let address = script(vec![
        Box::new(|stream| {
            let chunked =
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nt: v\r\n\r\n";
            for byte in chunked {
                stream.write_all(&[*byte]).unwrap();
            }
            assert!(read_head(stream));
            stream.write_all(b"HTTP/1.1 201 Created\r\n\r\nuntil I close").unwrap();
        }),
        says("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"),
    ]);
    let client = Client::new(&[&format!("http://{address}")]);
    assert_eq!([client.ending(0), client.ending(1), client.ending(2)], ["200", "201", "202"]);
}

#[test]
fn a_body_that_breaks_off_is_closed_and_the_next_request_goes_on() {
    let address = script(vec![
        says("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this"),
        says(""),
        says("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    ]);
    let client = Client::new(&[&format!("http://{address}")]);
    let broken = client.request(0);
    assert_eq!(client.label(&broken), "closed");
    assert!(broken.ending.is_error && broken.first_byte_at.is_some());
    let unanswered = client.request(1);
    assert_eq!(client.label(&unanswered), "closed");
    assert!(unanswered.first_byte_at.is_none());
    assert_eq!(client.ending(2), "200");
}

#[test]
fn an_answer_that_is_not_http_is_a_protocol_error() {
    let address = script(vec![says("220 mail.example ESMTP\r\n\r\n")]);
    let client = Client::new(&[&format!("http://{address}")]);
    assert_eq!(client.ending(0), "protocol");
}

#[test]
fn with_the_server_gone_requests_end_as_connection_and_nothing_hangs() {
    let address = script(vec![says("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n")]);
    let client = Client::new(&[&format!("http://{address}")]);
    assert_eq!(client.ending(0), "200");
    for number in 1..4 {
        assert_eq!(client.ending(number), "connection");
    }
}

#[test]
fn a_request_that_is_given_up_closes_its_connection_and_the_next_opens_another() {
    let (gone, is_gone) = mpsc::channel();
    let address = script(vec![
        Box::new(move |stream| {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            gone.send(stream.read(&mut [0]).ok()).unwrap();
        }),
        says("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    ]);
    let client = Client::new(&[&format!("http://{address}")]);
    client.runtime.block_on(async {
        let given_up = tokio::time::timeout(Duration::from_millis(20), client.session.request(turn(0)));
        assert!(given_up.await.is_err());
    });
    assert_eq!(client.ending(1), "200");
    assert_eq!(is_gone.recv_timeout(PATIENCE).unwrap(), Some(0));
}

#[test]
fn bodies_of_a_mebibyte_go_both_ways_and_are_counted() {
    const MIB: usize = 1 << 20;
    let server = Server::http1(|got| {
        assert_eq!(got.body().len(), MIB);
        answer(200, got.body().clone())
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    // Not text, so it is sent as it is.
    std::fs::write(file.path(), vec![0xff; MIB]).unwrap();
    let client = Client::new(&[&server.url("/"), "--data", &format!("@{}", file.path().display())]);
    for number in 0..3 {
        assert_eq!(client.ending(number), "200");
    }
    let traffic = client.session.traffic();
    let expected = 3 * MIB as u64..3 * MIB as u64 + 2_000;
    assert!(expected.contains(&traffic.sent_bytes) && expected.contains(&traffic.received_bytes), "{traffic:?}");
}

#[test]
fn templates_reach_the_server_in_path_query_header_and_body() {
    let rows = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rows.path(), "title,tag\n\"Emma: a #1 novel\",\"é\"\nUlysses,x\n").unwrap();
    let server = Server::http1(|_| answer(200, ""));
    let url = server.url("/books/{{row.title}}?n={{number 10}}&t={{row.tag}}&kept=%20#fragment");
    let client = Client::new(&[
        &url,
        "-H",
        "X-Client: {{client}}/{{worker}}",
        "--data",
        r#"{"title":"{{row.title}}"}"#,
        "--rows",
        rows.path().to_str().unwrap(),
    ]);
    assert_eq!([client.ending(0), client.ending(1)], ["200", "200"]);
    let got = server.requests.lock().unwrap();
    assert_eq!(got[0].uri(), "/books/Emma:%20a%20%231%20novel?n=10&t=%C3%A9&kept=%20");
    assert_eq!(got[0].body(), &Bytes::from(r#"{"title":"Emma: a #1 novel"}"#));
    assert_eq!(got[0].method(), Method::POST);
    assert_eq!(got[1].uri(), "/books/Ulysses?n=11&t=x&kept=%20");
    for request in got.iter() {
        assert_eq!(request.headers()["x-client"], "1/2");
        assert_eq!(request.headers()["content-type"], "application/json");
        assert_eq!(request.headers()["host"], server.address.to_string());
        assert_eq!(request.headers()["content-length"], request.body().len().to_string());
    }
}

#[test]
fn a_host_or_type_that_is_given_takes_the_place_of_ours() {
    let server = Server::http1(|_| answer(200, ""));
    let client =
        Client::new(&[&server.url("/"), "-H", "Host: shop.example", "-H", "content-type: text/plain", "--data", "x"]);
    assert_eq!(client.ending(0), "200");
    let got = server.requests.lock().unwrap();
    assert_eq!(got[0].headers().get_all("host").iter().collect::<Vec<_>>(), ["shop.example"]);
    assert_eq!(got[0].headers().get_all("content-type").iter().collect::<Vec<_>>(), ["text/plain"]);
}

#[test]
fn a_header_that_a_row_makes_impossible_fails_its_request_alone() {
    let rows = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rows.path(), "tag\n\"two\nlines\"\nfine\n").unwrap();
    let server = Server::http1(|_| answer(200, ""));
    let client = Client::new(&[&server.url("/"), "-H", "x: {{row.tag}}", "--rows", rows.path().to_str().unwrap()]);
    assert_eq!([client.ending(0), client.ending(1)], ["unsendable", "200"]);
}

#[test]
fn tls_carries_the_same_and_more_bytes_on_the_wire() {
    let (tls, _folder, authority) = certificate(b"http/1.1");
    let server = Server::start(false, Some(tls), |_| answer(200, "hello"));
    let url = format!("https://{}/", server.address);
    let client = Client::new(&[&url, "--ca", authority.to_str().unwrap()]);
    for number in 0..3 {
        assert_eq!(client.ending(number), "200");
    }
    // The handshake alone is larger.
    assert!(client.session.traffic().received_bytes > 500);
}
