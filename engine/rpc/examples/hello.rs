//! A server and a call to it, with metadata, a deadline and an error with details: `cargo run --example hello`.
#![expect(clippy::print_stdout, reason = "the example shows what it gets")]

use std::future::pending;
use std::time::Duration;

use hello::greeter_client::GreeterClient;
use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest, Wrong};
use quire_rpc::client::Channel;
use quire_rpc::prost::Message as _;
use quire_rpc::prost_types::Any;
use quire_rpc::{Code, Details, Request, Response, Server, Status};
use tokio::net::TcpListener;

mod hello {
    quire_rpc::include_proto!("hello");
}

struct English;

impl Greeter for English {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let title = request.metadata().get("title").unwrap_or("reader").to_owned();
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(wrong("name", "name is empty: it must be the name of the person to greet"));
        }
        Ok(Response::new(HelloReply { text: format!("Hello {title} {name}") }))
    }
}

/// An error that programs can read too: its details name the field.
fn wrong(field: &str, message: &str) -> Status {
    let detail = Any {
        type_url: "type.googleapis.com/hello.Wrong".to_owned(),
        value: Wrong { field: field.to_owned() }.encode_to_vec(),
    };
    let details = Details { code: Code::InvalidArgument as i32, message: message.to_owned(), details: vec![detail] };
    Status::with_details(Code::InvalidArgument, message.to_owned(), details.encode_to_vec().into())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = Server::builder().add_service(GreeterServer::new(English)).reflection();
    tokio::spawn(server.serve(listener, pending()));

    let client = GreeterClient::new(Channel::builder(&url)?.connect().await?);

    let mut request = Request::new(HelloRequest { name: "Lovelace".to_owned() });
    request.metadata_mut().insert("title", "Countess")?;
    request.set_timeout(Duration::from_secs(1));
    let reply = client.hello(request).await?.into_inner();
    println!("{}", reply.text);
    assert_eq!(reply.text, "Hello Countess Lovelace");

    let refused = client.hello(HelloRequest::default()).await.expect_err("an empty name");
    println!("{:?}: {}", refused.code(), refused.message());
    assert_eq!(refused.code(), Code::InvalidArgument);
    let details = Details::decode(refused.details())?.details;
    assert_eq!(Wrong::decode(&details[0].value[..])?.field, "name");
    Ok(())
}
