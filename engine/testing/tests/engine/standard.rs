//! TLS, and the standard services of any server.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Running, open, text};
use quire_rpc::channelz::ChannelzReporter;
use quire_rpc::client::{Channel, Settings};
use quire_rpc::health::HealthReporter;
use quire_rpc::prost::Message as _;
use quire_rpc::prost_types::{FileDescriptorProto, FileDescriptorSet};
use quire_rpc::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quire_rpc::rustls::server::WebPkiClientVerifier;
use quire_rpc::rustls::{ClientConfig, RootCertStore, ServerConfig};
use quire_rpc::server::{Builder, ConnectionRegistry, Method, Service as _};
use quire_rpc::{Code, Limits, Status};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rpc_testing::conformance_proto::conformance_service_server::ConformanceServiceServer;
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;
use rpc_testing::proto::echo_server::EchoServer;
use rpc_testing::{Conformance, EchoService};

mod channelz {
    quire_rpc::include_proto!("grpc.channelz.v1");
}

mod health {
    quire_rpc::include_proto!("grpc.health.v1");
}

mod reflection {
    quire_rpc::include_proto!("grpc.reflection.v1");
}

use channelz::address::Address as AddressKind;
use channelz::channelz_client::ChannelzClient;
use channelz::security::Model;
use channelz::security::tls::CipherSuite;
use channelz::{
    GetChannelRequest, GetServerRequest, GetServerSocketsRequest, GetServersRequest, GetSocketRequest,
    GetSubchannelRequest, GetTopChannelsRequest, ServerData, Socket,
};
use health::health_check_response::ServingStatus;
use health::{HealthCheckRequest, health_client::HealthClient};
use reflection::server_reflection_client::ServerReflectionClient;
use reflection::server_reflection_request::MessageRequest;
use reflection::server_reflection_response::MessageResponse;

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: RootCertStore,
}

fn identity() -> Identity {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let key = PrivateKeyDer::try_from(KeyPair::serialize_der(&signing_key)).unwrap();
    Identity { chain: vec![cert.der().clone()], key, roots }
}

#[tokio::test]
async fn mutual_tls_lets_in_only_those_it_knows() {
    let (ours, theirs) = (identity(), identity());
    let verifier = WebPkiClientVerifier::builder(Arc::new(theirs.roots)).build().unwrap();
    let config = ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(ours.chain, ours.key);
    let server = Running::with(Limits::default(), |builder| builder.tls(Arc::new(config.unwrap()))).await;
    let address = format!("https://localhost:{}", server.address.port());

    let known = ClientConfig::builder().with_root_certificates(ours.roots.clone());
    let known = known.with_client_auth_cert(theirs.chain, theirs.key).unwrap();
    let channel = Channel::builder(&address).unwrap().tls(Arc::new(known)).unwrap().connect().await.unwrap();
    assert_eq!(EchoClient::new(channel).call(text("secret")).await.unwrap().get_ref().payload, b"secret");

    let stranger = ClientConfig::builder().with_root_certificates(ours.roots).with_no_client_auth();
    let refused = Channel::builder(&address).unwrap().tls(Arc::new(stranger)).unwrap().connect().await;
    assert!(refused.is_err());
    assert!(Channel::builder(&address).unwrap().connect().await.is_err(), "https without a TLS configuration");
}

#[tokio::test]
async fn health_is_checked_and_watched() {
    let (reporter, service) = HealthReporter::new();
    let server = Running::with(Limits::default(), |builder| builder.add_service(service)).await;
    let client = HealthClient::new(server.channel(Settings::default()).await);
    let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
    assert_eq!(client.check(ask("")).await.unwrap().get_ref().status(), ServingStatus::Serving);
    assert_eq!(client.check(ask("a")).await.unwrap_err().code(), Code::NotFound);
    let mut watch = client.watch(ask("a")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
    for (serving, status) in [(true, ServingStatus::Serving), (false, ServingStatus::NotServing)] {
        reporter.set_serving("a", serving);
        let seen = tokio::time::timeout(Duration::from_secs(5), watch.message()).await.unwrap();
        assert_eq!(seen.unwrap().unwrap().status(), status);
        assert_eq!(client.check(ask("a")).await.unwrap().get_ref().status(), status);
    }
}

#[tokio::test]
async fn reflection_lists_services_and_gives_their_files() {
    let server = Running::with(Limits::default(), Builder::reflection).await;
    assert!(server.server.services().iter().any(|name| name == "grpc.reflection.v1alpha.ServerReflection"));
    let client = ServerReflectionClient::new(server.channel(Settings::default()).await);
    let asked = [
        MessageRequest::ListServices(String::new()),
        MessageRequest::FileContainingSymbol("testing.Echo.Call".to_owned()),
        MessageRequest::FileByFilename("conformance.proto".to_owned()),
        MessageRequest::FileContainingSymbol("testing.Nothing".to_owned()),
    ];
    let requests = quire_rpc::unfold(asked.into_iter(), |mut asked| async move {
        let request =
            reflection::ServerReflectionRequest { message_request: Some(asked.next()?), ..Default::default() };
        Some((request, asked))
    });
    let mut replies = client.server_reflection_info(requests).await.unwrap().into_inner();
    let mut next = async || replies.message().await.unwrap().unwrap().message_response.unwrap();
    match next().await {
        MessageResponse::ListServicesResponse(list) => assert!(list.service.iter().any(|s| s.name == "testing.Echo")),
        other => panic!("{other:?}"),
    }
    for files in [1, 3] {
        match next().await {
            MessageResponse::FileDescriptorResponse(found) => assert_eq!(found.file_descriptor_proto.len(), files),
            other => panic!("{other:?}"),
        }
    }
    match next().await {
        MessageResponse::ErrorResponse(error) => assert_eq!(error.error_code, Code::NotFound as i32),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_service_carries_its_contract_with_imported_files_and_comments() {
    let set = FileDescriptorSet::decode(EchoServer::new(EchoService).descriptors()).unwrap();
    let names: Vec<&str> = set.file.iter().map(FileDescriptorProto::name).collect();
    for name in ["echo.proto", "conformance.proto", "google/protobuf/any.proto"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let echo = set.file.iter().find(|file| file.name() == "echo.proto").unwrap();
    let places = &echo.source_code_info.as_ref().unwrap().location;
    assert!(places.iter().any(|place| place.leading_comments().contains("Answers `count` times")), "{places:?}");
}

#[test]
fn methods_that_change_nothing_are_known_by_their_contract() {
    let methods = ConformanceServiceServer::new(Conformance).methods();
    let unchanging: Vec<&str> = methods.iter().filter(|it| !it.has_side_effects()).map(Method::name).collect();
    assert_eq!(unchanging, ["IdempotentUnary"]);
}

/// Two servers with one registry, `echoes` and `operators`; the second has the service.
async fn channelz_of_two() -> (Running, Running, ChannelzClient) {
    let (reporter, service) = ChannelzReporter::new();
    let registry = ConnectionRegistry::default();
    let echoes = |builder: Builder| builder.connections(registry.clone()).channelz("echoes", &reporter);
    let echoes = Running::with(Limits::default(), echoes).await;
    let operators =
        |builder: Builder| builder.connections(registry).add_service(service).channelz("operators", &reporter);
    let operators = Running::with(Limits::default(), operators).await;
    let client = ChannelzClient::new(operators.channel(Settings::default()).await);
    (echoes, operators, client)
}

/// Id and figures of the server of this name.
async fn shown(client: &ChannelzClient, name: &str) -> (i64, ServerData) {
    let servers = client.get_servers(GetServersRequest::default()).await.unwrap().into_inner().server;
    let found = servers.into_iter().find(|server| server.r#ref.as_ref().unwrap().name == name).unwrap();
    (found.r#ref.unwrap().server_id, found.data.unwrap())
}

/// A page of a server's connections.
async fn sockets(client: &ChannelzClient, server_id: i64, start: i64, max: i64) -> Result<(Vec<i64>, bool), Status> {
    let request = GetServerSocketsRequest { server_id, start_socket_id: start, max_results: max };
    let page = client.get_server_sockets(request).await?.into_inner();
    Ok((page.socket_ref.iter().map(|socket| socket.socket_id).collect(), page.end))
}

async fn socket(client: &ChannelzClient, socket_id: i64) -> Result<Socket, Status> {
    client
        .get_socket(GetSocketRequest { socket_id, summary: false })
        .await
        .map(|found| found.into_inner().socket.unwrap())
}

#[tokio::test]
async fn channelz_counts_calls_of_a_server_and_of_its_connections() {
    let (echoes, _operators, client) = channelz_of_two().await;
    let (busy, quiet) = (echoes.client().await, echoes.client().await);
    quiet.call(text("x")).await.unwrap();
    for fail in [0, 0, 5] {
        let outcome = busy.call(Message { fail, ..text("x") }).await;
        assert_eq!(outcome.is_ok(), fail == 0);
    }
    let (_sender, _echoes) = open(&busy).await;
    // The server has begun the next one's call by then, and ended the turn of the one before.
    busy.call(text("behind it")).await.unwrap();
    let (id, data) = shown(&client, "echoes").await;
    assert_eq!((data.calls_started, data.calls_succeeded, data.calls_failed), (6, 4, 1));
    let (ids, _) = sockets(&client, id, 0, 0).await.unwrap();
    let mut started = Vec::new();
    for id in ids {
        let socket = socket(&client, id).await.unwrap();
        let Some(AddressKind::TcpipAddress(local)) = socket.local.unwrap().address else { panic!("TCP") };
        assert_eq!((local.ip_address, local.port), (vec![127, 0, 0, 1], i32::from(echoes.address.port())));
        let Some(AddressKind::TcpipAddress(remote)) = socket.remote.unwrap().address else { panic!("TCP") };
        assert!(remote.ip_address == [127, 0, 0, 1] && remote.port != local.port);
        assert_eq!((socket.r#ref.unwrap().name.as_str(), socket.security), ("127.0.0.1", None));
        started.push(socket.data.unwrap().streams_started);
    }
    started.sort_unstable();
    assert_eq!(started, [1, 5]);
}

#[tokio::test]
async fn channelz_lists_in_pages() {
    let (echoes, _operators, client) = channelz_of_two().await;
    let clients = [echoes.client().await, echoes.client().await, echoes.client().await];
    let (id, _) = shown(&client, "echoes").await;
    let (first, is_last) = sockets(&client, id, 0, 2).await.unwrap();
    assert!(first.len() == 2 && first.is_sorted() && !is_last, "{first:?}");
    let (second, is_last) = sockets(&client, id, first[1] + 1, 2).await.unwrap();
    assert!(second.len() == 1 && second[0] > first[1] && is_last, "{second:?}");
    assert_eq!(sockets(&client, id, first[0], 3).await.unwrap(), ([&first[..], &second].concat(), true));
    assert_eq!(sockets(&client, id, second[0] + 1, 2).await.unwrap(), (Vec::new(), true));
    assert_eq!(sockets(&client, id, 0, -1).await.unwrap_err().code(), Code::InvalidArgument);
    drop(clients);
    echoes.counts.until(|counts| counts.get("closed") == 3).await;
    assert_eq!(sockets(&client, id, 0, 0).await.unwrap(), (Vec::new(), true));

    let page = async |start_server_id| {
        let page =
            client.get_servers(GetServersRequest { start_server_id, max_results: 1 }).await.unwrap().into_inner();
        (page.server.into_iter().map(|server| server.r#ref.unwrap().server_id).collect::<Vec<_>>(), page.end)
    };
    let (operators, _) = shown(&client, "operators").await;
    assert_eq!((page(0).await, page(id + 1).await), ((vec![id], false), (vec![operators], true)));
}

#[tokio::test]
async fn channelz_finds_no_unknown_id_and_no_channel() {
    let (echoes, _operators, client) = channelz_of_two().await;
    let (id, data) = shown(&client, "echoes").await;
    let found = client.get_server(GetServerRequest { server_id: id }).await.unwrap().into_inner().server.unwrap();
    assert_eq!((found.r#ref.unwrap().name.as_str(), found.data), ("echoes", Some(data)));
    for unknown in [0, -1, i64::MAX] {
        let refused = [
            client.get_server(GetServerRequest { server_id: unknown }).await.map(drop),
            sockets(&client, unknown, 0, 0).await.map(drop),
            // Ids of servers and of connections are of one sequence.
            socket(&client, unknown).await.map(drop),
            socket(&client, id).await.map(drop),
            client.get_channel(GetChannelRequest { channel_id: unknown }).await.map(drop),
            client.get_subchannel(GetSubchannelRequest { subchannel_id: unknown }).await.map(drop),
        ];
        assert!(refused.iter().all(|refused| refused.as_ref().unwrap_err().code() == Code::NotFound), "{refused:?}");
    }
    let channels = client.get_top_channels(GetTopChannelsRequest::default()).await.unwrap().into_inner();
    assert!(channels.channel.is_empty() && channels.end);
    drop(echoes.stopped().await);
    let gone = client.get_server(GetServerRequest { server_id: id }).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound, "a server that was dropped");
}

#[tokio::test]
async fn channelz_shows_tls_and_the_certificate_of_the_client() {
    let (ours, theirs) = (identity(), identity());
    let verifier = WebPkiClientVerifier::builder(Arc::new(theirs.roots)).build().unwrap();
    let config = ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(ours.chain, ours.key);
    let (reporter, service) = ChannelzReporter::new();
    let change = |builder: Builder| builder.tls(Arc::new(config.unwrap())).add_service(service);
    let server = Running::with(Limits::default(), |builder| change(builder).channelz("secret", &reporter)).await;
    let certificate = theirs.chain[0].to_vec();
    let known = ClientConfig::builder().with_root_certificates(ours.roots);
    let known = known.with_client_auth_cert(theirs.chain, theirs.key).unwrap();
    let url = format!("https://localhost:{}", server.address.port());
    let channel = Channel::builder(&url).unwrap().tls(Arc::new(known)).unwrap().connect().await.unwrap();
    let client = ChannelzClient::new(channel);
    let (id, _) = shown(&client, "secret").await;
    let (own, _) = sockets(&client, id, 0, 0).await.unwrap();
    let Some(Model::Tls(tls)) = socket(&client, own[0]).await.unwrap().security.unwrap().model else { panic!("TLS") };
    assert_eq!(tls.remote_certificate, certificate);
    let Some(CipherSuite::StandardName(suite)) = tls.cipher_suite else { panic!("a standard name") };
    assert!(suite.starts_with("TLS_") && ["_SHA256", "_SHA384"].iter().any(|end| suite.ends_with(end)), "{suite}");
}
