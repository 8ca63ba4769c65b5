//! A page that calls the service with `fetch`, by Connect's protocol in JSON. `cargo run --example browser`, then open the
//! address it prints.
#![expect(clippy::print_stdout, reason = "the example says where it is")]

use std::future::Future;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest};
use quire_rpc::{Request, Response, Server, Status};
use tokio::net::TcpListener;

mod hello {
    quire_rpc::include_proto!("hello");
}

struct English;

impl Greeter for English {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("name is empty: it must be the name of the person to greet"));
        }
        Ok(Response::new(HelloReply { text: format!("Hello {name}") }))
    }
}

/// Serves the page and the service until `stop` is ready.
pub(crate) async fn serve(listener: TcpListener, stop: impl Future<Output = ()>) -> std::io::Result<()> {
    let page = Router::new().route("/", get(async || Html(include_str!("browser.html"))));
    Server::builder().add_service(GreeterServer::new(English)).http(page).serve(listener, stop).await
}

#[tokio::main]
#[cfg_attr(test, expect(dead_code, reason = "the test serves on a port of its own"))]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}", listener.local_addr()?);
    serve(listener, std::future::pending()).await
}
