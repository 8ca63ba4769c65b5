//! Interceptors: the server's asks each call for a token, the client's sends it: `cargo run --example auth`.
#![expect(clippy::print_stdout, reason = "the example shows what it gets")]

use std::future::pending;

use hello::greeter_client::GreeterClient;
use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest};
use quire_rpc::client::Channel;
use quire_rpc::{Code, Request, Response, Server, Status};
use tokio::net::TcpListener;

mod hello {
    quire_rpc::include_proto!("hello");
}

/// The caller, as the interceptor found out.
#[derive(Clone)]
struct Caller(&'static str);

/// Admits calls with the token, and passes the caller to the handler.
fn check(_method: &str, request: &mut Request<()>) -> Result<(), Status> {
    match request.metadata().get("authorization") {
        Some("Bearer open sesame") => {
            request.extensions_mut().insert(Caller("Ali"));
            Ok(())
        }
        Some(_) => Err(Status::permission_denied("the token is not known here: ask the operator for one")),
        None => Err(Status::unauthenticated("send a token: authorization: Bearer …")),
    }
}

struct English;

impl Greeter for English {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let Some(Caller(caller)) = request.extensions().get() else {
            return Err(Status::internal("no interceptor stands before this service"));
        };
        Ok(Response::new(HelloReply { text: format!("Hello {}, says {caller}", request.get_ref().name) }))
    }
}

/// A client that sends this token with every call.
fn with_token(channel: &Channel, token: &'static str) -> GreeterClient {
    GreeterClient::new(channel.intercepted(move |_: &str, request: &mut Request<()>| {
        let value = format!("Bearer {token}");
        request.metadata_mut().insert("authorization", &value).map_err(|error| Status::internal(error.to_string()))
    }))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = Server::builder().interceptor(check).add_service(GreeterServer::new(English));
    tokio::spawn(server.serve(listener, pending()));

    let channel = Channel::builder(&url)?.connect().await?;
    let request = || HelloRequest { name: "Ada".to_owned() };
    let answer = with_token(&channel, "open sesame").hello(request()).await?.into_inner().text;
    println!("{answer}");
    assert_eq!(answer, "Hello Ada, says Ali");
    for (client, expected) in [
        (GreeterClient::new(channel.clone()), Code::Unauthenticated),
        (with_token(&channel, "guess"), Code::PermissionDenied),
    ] {
        let refused = client.hello(request()).await.expect_err("no token, or a wrong one");
        println!("{:?}: {}", refused.code(), refused.message());
        assert_eq!(refused.code(), expected);
    }
    Ok(())
}
