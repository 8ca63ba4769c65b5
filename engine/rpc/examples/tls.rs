//! TLS, and mutual TLS, by which the server identifies its callers: `cargo run --example tls`.
#![expect(clippy::print_stdout, reason = "the example shows what it gets")]

use std::error::Error;
use std::future::pending;
use std::sync::Arc;

use hello::greeter_client::GreeterClient;
use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest};
use quire_rpc::client::Channel;
use quire_rpc::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quire_rpc::rustls::server::WebPkiClientVerifier;
use quire_rpc::rustls::{ClientConfig, RootCertStore, ServerConfig};
use quire_rpc::{Request, Response, Server, Status};
use tokio::net::TcpListener;

mod hello {
    quire_rpc::include_proto!("hello");
}

struct English;

impl Greeter for English {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let certificates = request.peer().map_or(0, |peer| peer.certificates.len());
        let name = request.into_inner().name;
        Ok(Response::new(HelloReply { text: format!("Hello {name}, you proved {certificates} certificates") }))
    }
}

/// A self-signed certificate, its key, and a store that trusts it alone. In production a certificate authority signs
/// certificates, and `rustls_pki_types` reads them from PEM files.
struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    trusted: RootCertStore,
}

impl Identity {
    fn new(name: &str) -> Result<Self, Box<dyn Error>> {
        let made = rcgen::generate_simple_self_signed([name.to_owned()])?;
        let certificate = made.cert.der().clone();
        let mut trusted = RootCertStore::empty();
        trusted.add(certificate.clone())?;
        Ok(Self { certificate, key: PrivateKeyDer::try_from(made.signing_key.serialize_der())?, trusted })
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (ours, theirs) = (Identity::new("localhost")?, Identity::new("ada")?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://localhost:{}", listener.local_addr()?.port());

    // Without the verifier, `with_no_client_auth()` makes it plain TLS.
    let callers = WebPkiClientVerifier::builder(Arc::new(theirs.trusted)).build()?;
    let server = ServerConfig::builder().with_client_cert_verifier(callers);
    let server = server.with_single_cert(vec![ours.certificate], ours.key)?;
    let builder = Server::builder().add_service(GreeterServer::new(English)).tls(Arc::new(server));
    tokio::spawn(builder.serve(listener, pending()));

    let known = ClientConfig::builder().with_root_certificates(ours.trusted.clone());
    let known = known.with_client_auth_cert(vec![theirs.certificate], theirs.key)?;
    let channel = Channel::builder(&url)?.tls(Arc::new(known))?.connect().await?;
    let reply = GreeterClient::new(channel).hello(HelloRequest { name: "Ada".to_owned() }).await?.into_inner();
    println!("{}", reply.text);
    assert_eq!(reply.text, "Hello Ada, you proved 1 certificates");

    let stranger = ClientConfig::builder().with_root_certificates(ours.trusted).with_no_client_auth();
    let refused = Channel::builder(&url)?.tls(Arc::new(stranger))?.connect().await;
    println!("a stranger: {}", refused.expect_err("no certificate, no connection"));
    Ok(())
}
