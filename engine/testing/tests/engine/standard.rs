//! TLS, and the standard services of any server.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Running, text};
use quire_rpc::client::{Channel, Settings};
use quire_rpc::health::HealthReporter;
use quire_rpc::prost::Message as _;
use quire_rpc::prost_types::{FileDescriptorProto, FileDescriptorSet};
use quire_rpc::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quire_rpc::rustls::server::WebPkiClientVerifier;
use quire_rpc::rustls::{ClientConfig, RootCertStore, ServerConfig};
use quire_rpc::server::{Builder, Method, Service as _};
use quire_rpc::{Code, Limits};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rpc_testing::conformance_proto::conformance_service_server::ConformanceServiceServer;
use rpc_testing::proto::echo_client::EchoClient;
use rpc_testing::proto::echo_server::EchoServer;
use rpc_testing::{Conformance, EchoService};

mod health {
    quire_rpc::include_proto!("grpc.health.v1");
}

mod reflection {
    quire_rpc::include_proto!("grpc.reflection.v1");
}

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
