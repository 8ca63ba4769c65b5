//! The load generator's probe: its readings match the server's work.

use std::{fs, path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bench::probe::Probe;
use bookstore::grpc::wire::BookTopicRequest;
use quire_rpc::rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};

use crate::common::{
    process::{Server, Start},
    store::{BOOK, folder, one},
};

#[tokio::test]
async fn difference_of_two_readings_is_what_was_called_between_them() {
    let folder = folder();
    let server = Server::start(folder.path());
    let shop = server.shop();
    shop.buy(one(BOOK)).await.expect("an answer");
    let probe = Probe::find(&server.address.to_string(), None).expect("a server of ours");
    let before = probe.read().expect("a reading");
    for _ in 0..20 {
        shop.buy(one(BOOK)).await.expect("an answer");
    }
    shop.search(BookTopicRequest { topic: "college life".into(), ..BookTopicRequest::default() })
        .await
        .expect("an answer");
    let after = probe.read().expect("a reading");
    let side = after.since(&before).expect("the same process");
    assert_eq!(side.calls, 21);
    assert_eq!(side.latency.iter().map(|(_, calls)| calls).sum::<u64>(), 21);
    assert!(side.latency.last().is_some_and(|(bound, _)| bound.is_infinite()));
    assert!(side.cpu_seconds > 0.0);
    let address = server.address;
    server.stop();
    let again = Start::default().flag(&format!("--listen={address}")).serve(folder.path());
    let restarted = probe.read().expect("a reading");
    assert!(restarted.since(&before).is_none(), "another process has counted from zero");
    again.stop();
}

/// Writes a certificate for 127.0.0.1 and its key; returns a client's configuration that trusts it.
pub(crate) fn certificate(folder: &Path) -> Arc<ClientConfig> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let write = |name: &str, kind: &str, der: &[u8]| {
        let pem = format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", STANDARD.encode(der));
        fs::write(folder.join(name), pem).expect("a file");
    };
    write("cert.pem", "CERTIFICATE", made.cert.der());
    write("key.pem", "PRIVATE KEY", made.signing_key.serialized_der());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert)).expect("a root");
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    // As for gRPC.
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

#[test]
fn a_server_behind_tls_is_read_over_tls_and_only_so() {
    let folder = folder();
    let tls = certificate(folder.path());
    let start = Start::default().set("tls.certificate=cert.pem").set("tls.key=key.pem");
    let server = start.serve(folder.path());
    let address = server.address.to_string();
    let probe = Probe::find(&address, Some(&tls)).expect("a server of ours");
    assert!(probe.read().is_ok());
    assert!(Probe::find(&address, None).is_none());
}
