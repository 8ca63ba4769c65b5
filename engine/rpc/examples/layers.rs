//! Tower layers around the calls of a server and of a channel: `cargo run --example layers`.
#![expect(clippy::print_stdout, reason = "the example shows what it gets")]

use std::error::Error;
use std::future::pending;
use std::time::Duration;

use hello::greeter_client::GreeterClient;
use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest};
use quire_rpc::client::Channel;
use quire_rpc::{Request, Response, Server, Status};
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tower_http::set_header::SetRequestHeaderLayer;
use tower_http::trace::TraceLayer;

mod hello {
    quire_rpc::include_proto!("hello");
}

struct English;

impl Greeter for English {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let title = request.metadata().get("title").unwrap_or("reader").to_owned();
        Ok(Response::new(HelloReply { text: format!("Hello {title} {}", request.into_inner().name) }))
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let around = ServiceBuilder::new().layer(TraceLayer::new_for_grpc()).concurrency_limit(100);
    let server = Server::builder().layer(around).add_service(GreeterServer::new(English));
    tokio::spawn(server.serve(listener, pending()));

    let title = SetRequestHeaderLayer::overriding(
        http::HeaderName::from_static("title"),
        http::HeaderValue::from_static("Countess"),
    );
    let layers = ServiceBuilder::new().timeout(Duration::from_secs(1)).layer(title);
    let client = GreeterClient::new(Channel::builder(&url)?.connect().await?.layered(layers));
    let text = client.hello(HelloRequest { name: "Lovelace".to_owned() }).await?.into_inner().text;
    println!("{text}");
    assert_eq!(text, "Hello Countess Lovelace");
    Ok(())
}
