//! A service around a service: calls without the token do not reach it: `cargo run --example auth`.
#![expect(clippy::print_stdout, reason = "the example shows what it gets")]

use std::future::pending;

use hello::greeter_client::GreeterClient;
use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest};
use quire_rpc::client::Channel;
use quire_rpc::{Code, Metadata, Request, Response, Server, Status};
use tokio::net::TcpListener;

mod hello {
    quire_rpc::include_proto!("hello");
}

/// Asks for a token before each call of the service inside.
struct Guarded<S> {
    inner: S,
    authorization: String,
}

impl<S> Guarded<S> {
    fn check(&self, metadata: &Metadata) -> Result<(), Status> {
        match metadata.get("authorization") {
            Some(given) if given == self.authorization => Ok(()),
            Some(_) => Err(Status::permission_denied("the token is not known here: ask the operator for one")),
            None => Err(Status::unauthenticated("send a token: authorization: Bearer …")),
        }
    }
}

impl<S: Greeter> Greeter for Guarded<S> {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        self.check(request.metadata())?;
        self.inner.hello(request).await
    }
}

struct English;

impl Greeter for English {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(HelloReply { text: format!("Hello {}", request.into_inner().name) }))
    }
}

/// A request of the client, with its token if it has one.
fn request(token: Option<&str>) -> Request<HelloRequest> {
    let mut request = Request::new(HelloRequest { name: "Ada".to_owned() });
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", &format!("Bearer {token}")).expect("the token is ASCII");
    }
    request
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let guarded = Guarded { inner: English, authorization: "Bearer open sesame".to_owned() };
    tokio::spawn(Server::builder().add_service(GreeterServer::new(guarded)).serve(listener, pending()));

    let client = GreeterClient::new(Channel::builder(&url)?.connect().await?);
    println!("{}", client.hello(request(Some("open sesame"))).await?.into_inner().text);
    for (token, expected) in [(None, Code::Unauthenticated), (Some("guess"), Code::PermissionDenied)] {
        let refused = client.hello(request(token)).await.expect_err("no token, or a wrong one");
        println!("{:?}: {}", refused.code(), refused.message());
        assert_eq!(refused.code(), expected);
    }
    Ok(())
}
