//! gRPC and an axum router on one port: `cargo run --example beside_axum`.
#![expect(clippy::print_stdout, reason = "the example shows what it gets")]

use std::error::Error;
use std::future::pending;

use axum::Router;
use axum::routing::get;
use hello::greeter_client::GreeterClient;
use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest};
use quire_rpc::client::Channel;
use quire_rpc::{Request, Response, Server, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

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
    let pages = Router::new().route("/about", get(async || "A greeter.\n"));
    let server = Server::builder().add_service(GreeterServer::new(English)).http(pages);
    tokio::spawn(server.serve(listener, pending()));

    let client = GreeterClient::new(Channel::builder(&format!("http://{address}"))?.connect().await?);
    println!("{}", client.hello(HelloRequest { name: "Ada".to_owned() }).await?.into_inner().text);

    let mut browser = TcpStream::connect(address).await?;
    browser.write_all(b"GET /about HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut page = String::new();
    browser.read_to_string(&mut page).await?;
    println!("{page}");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("A greeter.\n"));
    Ok(())
}
