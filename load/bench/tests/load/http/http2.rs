//! HTTP/2: many requests on a connection, with and without TLS.

use std::sync::Arc;
use std::time::Duration;

use bench::workload::Session as _;

use super::server::{Client, Server, answer, certificate, turn};

fn http2(
    handler: impl Fn(&super::server::Got) -> http::Response<http_body_util::Full<bytes::Bytes>> + Send + Sync + 'static,
) -> Server {
    Server::start(true, None, handler)
}

#[test]
fn a_hundred_requests_at_once_share_a_connection() {
    let server = http2(|got| answer(200, got.uri().path().to_owned()));
    let client = Client::new(&[&server.url("/{{number}}"), "--http2", "-m", "100"]);
    client.request(0);
    let before = server.connections();
    client.runtime.block_on(async {
        let session = std::rc::Rc::new(client.session);
        let local = tokio::task::LocalSet::new();
        let tasks: Vec<_> = (1..100)
            .map(|number| {
                let session = std::rc::Rc::clone(&session);
                local.spawn_local(async move { session.request(turn(number)).await })
            })
            .collect();
        local.await;
        for task in tasks {
            assert_eq!(task.await.unwrap().ending.number, 200);
        }
    });
    assert_eq!(server.connections(), before);
    let mut paths: Vec<u64> =
        server.requests.lock().unwrap().iter().map(|got| got.uri().path()[1..].parse().unwrap()).collect();
    paths.sort_unstable();
    assert!(paths.into_iter().eq(0..100));
}

#[test]
fn large_bodies_and_statuses_arrive_as_on_http1() {
    let server = http2(|got| match got.uri().path() {
        "/0" => answer(200, got.body().clone()),
        "/1" => answer(204, ""),
        _ => answer(404, "no"),
    });
    let body = "x".repeat(1 << 20);
    let client = Client::new(&[&server.url("/{{number}}"), "--http2", "--data", &body]);
    assert_eq!([client.ending(0), client.ending(1), client.ending(2)], ["200", "204", "404"]);
    assert!(client.session.traffic().received_bytes > 1 << 20);
    assert!(client.session.traffic().sent_bytes > 3 << 20);
}

#[test]
fn a_request_that_is_given_up_does_not_disturb_the_others() {
    let rows = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rows.path(), format!("path\nok\n{}", "never\n".repeat(19))).unwrap();
    let server = http2(|_| answer(200, ""));
    let client = Client::new(&[&server.url("/{{row.path}}"), "--http2", "--rows", rows.path().to_str().unwrap()]);
    assert_eq!(client.ending(0), "200");
    let before = server.connections();
    for number in 1..20 {
        client.runtime.block_on(async {
            let given_up = tokio::time::timeout(Duration::from_millis(2), client.session.request(turn(number)));
            assert!(given_up.await.is_err());
        });
    }
    assert_eq!(client.ending(0), "200");
    assert_eq!(server.connections(), before);
}

#[test]
fn with_the_server_gone_requests_end_as_connection() {
    let server = http2(|_| answer(200, ""));
    let client = Client::new(&[&server.url("/"), "--http2"]);
    assert_eq!(client.ending(0), "200");
    drop(server);
    // The first may still use the old connection, and sees it end.
    let endings: Vec<String> = (1..4).map(|number| client.ending(number)).collect();
    assert!(["closed", "connection", "200"].contains(&endings[0].as_str()), "{endings:?}");
    assert_eq!(endings[2], "connection", "{endings:?}");
}

#[test]
fn tls_agrees_on_http2_by_alpn() {
    let (tls, _folder, authority) = certificate(b"h2");
    let server = Server::start(true, Some(tls), |got| {
        assert_eq!(got.version(), http::Version::HTTP_2);
        answer(200, "hello")
    });
    let url = format!("https://{}/", server.address);
    let client = Client::new(&[&url, "--http2", "--ca", authority.to_str().unwrap()]);
    assert_eq!([client.ending(0), client.ending(1)], ["200", "200"]);
}

#[test]
fn a_host_that_is_given_is_the_authority() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let server = http2(move |got| {
        kept.lock().unwrap().push(got.uri().authority().map(ToString::to_string));
        answer(200, "")
    });
    let client = Client::new(&[&server.url("/"), "--http2", "-H", "host: shop.example"]);
    assert_eq!(client.ending(0), "200");
    assert_eq!(*seen.lock().unwrap(), [Some("shop.example".to_owned())]);
}
