//! Servers on ports of their own, and the flags of a load against them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bench::cli::grpc::{GrpcArgs, prepare};
use bench::template::Turn;
use bench::workload::grpc::{GrpcSession, GrpcWorkload};
use bench::workload::{Answer, Session as _, Workload as _};
use clap::Parser;
use quire_rpc::health::HealthReporter;
use quire_rpc::rustls::pki_types::PrivateKeyDer;
use quire_rpc::rustls::server::WebPkiClientVerifier;
use quire_rpc::rustls::{RootCertStore, ServerConfig};
use quire_rpc::server::Builder;
use quire_rpc::{Limits, Server};
use rpc_testing::interop_proto::test_service_server::TestServiceServer;
use rpc_testing::proto::echo_server::EchoServer;
use rpc_testing::{EchoService, InteropService};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) fn echo() -> Builder {
    Server::builder().add_service(EchoServer::new(EchoService))
}

/// Echo, interop and health, with reflection in both versions.
pub(crate) fn everything() -> Builder {
    let (_, health_service) = HealthReporter::new();
    echo().add_service(TestServiceServer::new(InteropService)).add_service(health_service).reflection()
}

/// Serves until the test's runtime ends.
pub(crate) async fn serve(builder: Builder) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = builder.build();
    tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
    address
}

pub(crate) fn one_stream_at_a_time() -> Limits {
    let mut limits = Limits::default();
    limits.http2.concurrent_streams_max = 1;
    limits
}

/// A proxy whose connections can be cut.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    cut: watch::Sender<u64>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, seen) = watch::channel(0);
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut seen = seen.clone();
                seen.mark_unchanged();
                tokio::spawn(async move {
                    let mut upstream = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut upstream) => {}
                        _ = seen.changed() => {}
                    }
                });
            }
        });
        Self { address, cut, accepting }
    }

    pub(crate) fn cut(&self) {
        self.cut.send_modify(|times| *times += 1);
    }

    /// Cuts, and accepts no more connections.
    pub(crate) async fn stop(self) {
        self.accepting.abort();
        let _ = self.accepting.await;
        self.cut.send_modify(|times| *times += 1);
    }
}

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    grpc: GrpcArgs,
}

/// Parses flags like a command line.
pub(crate) fn arguments(address: &impl ToString, method: &str, flags: &[&str]) -> GrpcArgs {
    let words = ["quire-bench".to_owned(), address.to_string(), method.to_owned()];
    let words = words.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned()));
    Command::try_parse_from(words).unwrap().grpc
}

pub(crate) async fn workload(address: impl ToString, method: &str, flags: &[&str]) -> GrpcWorkload {
    prepare(&arguments(&address, method, flags)).await.unwrap().0
}

/// The one-line error of a rejected load.
pub(crate) async fn refusal(address: impl ToString, method: &str, flags: &[&str]) -> String {
    let line = format!("{:#}", prepare(&arguments(&address, method, flags)).await.unwrap_err());
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

pub(crate) fn turn(number: u64) -> Turn {
    Turn { number, client: 0, worker: 0 }
}

/// One request on a connection of its own, with its ending as text.
pub(crate) async fn once(workload: &GrpcWorkload) -> (Answer, String) {
    let session: GrpcSession = workload.open(0).await.unwrap();
    let answer = session.request(turn(0)).await;
    (answer, workload.label(answer.ending.number))
}

/// Ending of one request with these flags.
pub(crate) async fn ending(address: impl ToString, method: &str, flags: &[&str]) -> String {
    let (answer, label) = once(&workload(address, method, flags).await).await;
    assert!(answer.sent_at <= answer.done_at);
    assert!(answer.first_byte_at.is_none_or(|at| answer.sent_at <= at && at <= answer.done_at), "{answer:?}");
    label
}

pub(crate) fn proto() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../engine/testing/proto/echo.proto")
}

/// A server's certificate in files, and its TLS configurations.
pub(crate) struct Certified {
    pub(crate) ca: PathBuf,
    pub(crate) key_file: PathBuf,
    pub(crate) server: Arc<ServerConfig>,
    /// Like `server`, but only for clients with this same certificate.
    pub(crate) server_for_known: Arc<ServerConfig>,
    _folder: tempfile::TempDir,
}

impl Certified {
    pub(crate) fn for_localhost() -> Self {
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (ca, key_file) = (folder.path().join("ca.pem"), folder.path().join("key.pem"));
        std::fs::write(&ca, signed.cert.pem()).unwrap();
        std::fs::write(&key_file, signed.signing_key.serialize_pem()).unwrap();
        let key = || PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        let chain = vec![signed.cert.der().clone()];
        let server = ServerConfig::builder().with_no_client_auth().with_single_cert(chain.clone(), key());
        let mut roots = RootCertStore::empty();
        roots.add(chain[0].clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let known = ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key());
        let (server, server_for_known) = (Arc::new(server.unwrap()), Arc::new(known.unwrap()));
        Self { ca, key_file, server, server_for_known, _folder: folder }
    }
}
