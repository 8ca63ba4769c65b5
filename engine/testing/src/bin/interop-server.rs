//! gRPC's `TestService` on an address, with channelz, health and reflection, for interoperability clients.

use std::future::pending;

use quire_rpc::Server;
use quire_rpc::channelz::ChannelzReporter;
use quire_rpc::health::HealthReporter;
use rpc_testing::InteropService;
use rpc_testing::interop_proto::test_service_server::TestServiceServer;
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:10000".to_owned());
    let listener = TcpListener::bind(address).await?;
    let (_reporter, health) = HealthReporter::new();
    let (reporter, channelz) = ChannelzReporter::new();
    Server::builder()
        .channelz("interop", &reporter)
        .add_service(channelz)
        .add_service(TestServiceServer::new(InteropService))
        .add_service(health)
        .reflection()
        .serve(listener, pending())
        .await?;
    Ok(())
}
