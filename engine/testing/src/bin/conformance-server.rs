//! Server under test for connectconformance: reads its configuration on standard input and prints its address.

use std::future::pending;
use std::io::Cursor;
use std::sync::Arc;

use quire_rpc::prost::Message;
use quire_rpc::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use quire_rpc::rustls::server::WebPkiClientVerifier;
use quire_rpc::rustls::{RootCertStore, ServerConfig};
use quire_rpc::{Encoding, Limits, Server};
use rpc_testing::Conformance;
use rpc_testing::conformance_proto::conformance_service_server::ConformanceServiceServer;
use rpc_testing::conformance_proto::{ServerCompatRequest, ServerCompatResponse};
use tokio::io::{AsyncReadExt, AsyncWriteExt, stdin, stdout};
use tokio::net::TcpListener;

type Failure = Box<dyn std::error::Error>;

fn tls(request: &ServerCompatRequest) -> Result<Option<Arc<ServerConfig>>, Failure> {
    let Some(credentials) = request.server_creds.as_ref().filter(|_| request.use_tls) else { return Ok(None) };
    let chain = CertificateDer::pem_reader_iter(Cursor::new(&credentials.cert)).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&credentials.key)?;
    let builder = ServerConfig::builder();
    let config = if request.client_tls_cert.is_empty() {
        builder.with_no_client_auth().with_single_cert(chain, key)?
    } else {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_reader_iter(Cursor::new(&request.client_tls_cert)) {
            roots.add(root?)?;
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build()?;
        builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?
    };
    Ok(Some(Arc::new(config)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut input = stdin();
    let mut encoded = vec![0; input.read_u32().await? as usize];
    input.read_exact(&mut encoded).await?;
    let request = ServerCompatRequest::decode(&encoded[..])?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut limits = Limits::default();
    if request.message_receive_limit > 0 {
        limits.message_bytes_max = request.message_receive_limit as usize;
    }
    let mut builder = Server::builder()
        .add_service(ConformanceServiceServer::new(Conformance))
        .limits(limits)
        .compress(Encoding::Gzip, 0);
    if let Some(tls) = tls(&request)? {
        builder = builder.tls(tls);
    }
    let response = ServerCompatResponse {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr()?.port().into(),
        pem_cert: request.server_creds.map(|credentials| credentials.cert).unwrap_or_default(),
    };
    let mut output = stdout();
    let encoded = response.encode_to_vec();
    output.write_u32(u32::try_from(encoded.len())?).await?;
    output.write_all(&encoded).await?;
    output.flush().await?;
    // The runner ends us with a signal.
    builder.serve(listener, pending()).await?;
    Ok(())
}
