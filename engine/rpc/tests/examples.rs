//! Tests of the examples.

use std::future::pending;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[path = "../examples/auth.rs"]
mod auth;
#[path = "../examples/beside_axum.rs"]
mod beside_axum;
#[path = "../examples/browser.rs"]
mod browser;
#[path = "../examples/chat.rs"]
mod chat_room;
#[cfg(unix)]
#[path = "../examples/connectors.rs"]
mod connectors;
#[path = "../examples/hello.rs"]
mod hello_call;
#[cfg(feature = "tower")]
#[path = "../examples/inside_axum.rs"]
mod inside_axum;
#[cfg(feature = "tower")]
#[path = "../examples/layers.rs"]
mod layers;
#[path = "../examples/tls.rs"]
mod tls;

#[test]
fn a_call_has_metadata_a_deadline_and_may_fail() {
    hello_call::main().unwrap();
}

#[test]
fn everyone_in_a_room_hears_everyone() {
    chat_room::main().unwrap();
}

#[test]
fn calls_without_the_token_are_refused() {
    auth::main().unwrap();
}

#[test]
fn callers_are_known_by_their_certificates() {
    tls::main().unwrap();
}

#[cfg(unix)]
#[test]
fn calls_pass_pipes_unix_sockets_and_proxies() {
    connectors::main().unwrap();
}

#[test]
fn grpc_and_a_router_share_a_port() {
    beside_axum::main().unwrap();
}

#[cfg(feature = "tower")]
#[test]
fn axum_answers_calls_on_its_own_connections() {
    inside_axum::main().unwrap();
}

#[cfg(feature = "tower")]
#[test]
fn layers_stand_around_calls_on_both_sides() {
    layers::main().unwrap();
}

#[tokio::test]
async fn a_page_calls_with_fetch() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(browser::serve(listener, pending()));
    let ask = async |method: &str, path: &str, json: &str| {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        let kind = "content-type: application/json\r\nconnect-protocol-version: 1\r\n";
        let request = format!("{head}{kind}content-length: {}\r\n\r\n{json}", json.len());
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(ask("GET", "/", "").await.contains("fetch(\"/hello.Greeter/Hello\""));
    let reply = ask("POST", "/hello.Greeter/Hello", r#"{"name":"Ada"}"#).await;
    assert!(reply.starts_with("HTTP/1.1 200 OK") && reply.ends_with(r#"{"text":"Hello Ada"}"#), "{reply}");
    let refused = ask("POST", "/hello.Greeter/Hello", "{}").await;
    assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains(r#""code":"invalid_argument""#), "{refused}");
}
