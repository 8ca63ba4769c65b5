//! gRPC, gRPC-Web and Connect inside an axum application, behind its layers: `cargo run --example inside_axum`.
#![expect(clippy::print_stdout, reason = "the example shows what it gets")]

use std::error::Error;

use axum::Router;
use axum::routing::get;
use hello::greeter_client::GreeterClient;
use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest};
use quire_rpc::client::Channel;
use quire_rpc::{Request, Response, Server, Status};
use tokio::net::TcpListener;

mod hello {
    quire_rpc::include_proto!("hello");
}

struct English;

impl Greeter for English {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(HelloReply { text: format!("Hello {}", request.into_inner().name) }))
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let calls = Server::builder().add_service(GreeterServer::new(English)).build().into_service();
    let app = Router::new().route("/about", get(async || "A greeter.\n")).fallback_service(calls);
    tokio::spawn(async move { axum::serve(listener, app).await });

    let client = GreeterClient::new(Channel::builder(&format!("http://{address}"))?.connect().await?);
    let text = client.hello(HelloRequest { name: "Ada".to_owned() }).await?.into_inner().text;
    println!("{text}");
    assert_eq!(text, "Hello Ada");
    Ok(())
}
