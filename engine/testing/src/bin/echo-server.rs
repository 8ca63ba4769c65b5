//! The echo service on an address, on one thread, for h2spec and h2load.
//!
//! Usage: `echo-server [address]`.

use std::future::pending;

use quire_rpc::Server;
use rpc_testing::proto::echo_server::EchoServer;
use rpc_testing::{EchoService, PlainHttp};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:50051".to_owned());
    let listener = TcpListener::bind(address).await?;
    Server::builder().add_service(EchoServer::new(EchoService)).http(PlainHttp).serve(listener, pending()).await
}
