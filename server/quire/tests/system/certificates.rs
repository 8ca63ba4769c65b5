//! The server's certificate: checked at the start, reloaded on SIGHUP, with its expiry announced in time.

use std::{fs, path::Path, sync::Arc};

use bookstore::grpc::wire::{HelloRequest, book_store_client::BookStoreClient};
use quire_rpc::{
    client::Channel,
    rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer},
};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::bad_starts::one_line;
use crate::common::{
    process::{Server, Start},
    store::folder,
};

/// Writes a certificate for 127.0.0.1, valid from one year to another, and its key.
fn certificate(folder: &Path, years: (i32, i32)) -> CertificateDer<'static> {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    (params.not_before, params.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
    let made = params.self_signed(&key).expect("a certificate");
    fs::write(folder.join("cert.pem"), made.pem()).expect("a file");
    fs::write(folder.join("key.pem"), key.serialize_pem()).expect("a file");
    made.der().clone()
}

fn start() -> Start {
    Start::default().set("tls.certificate=cert.pem").set("tls.key=key.pem")
}

/// A client that trusts only this certificate.
fn client(server: &Server, trusted: CertificateDer<'static>) -> BookStoreClient {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).expect("a root");
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let channel = Channel::builder(&format!("https://{}", server.address)).expect("an address");
    BookStoreClient::new(channel.tls(Arc::new(config)).expect("a name").connect_lazy().expect("a channel"))
}

#[test]
fn a_certificate_that_does_not_hold_now_stops_the_start_with_its_dates() {
    let folder = folder();
    for (years, said) in [((2001, 2002), "has expired"), ((2101, 2102), "is not valid yet")] {
        certificate(folder.path(), years);
        let line = one_line(&mut start().command(folder.path()));
        assert!(line.contains("cert.pem") && line.contains(said), "{line}");
        assert!(line.contains(&years.0.to_string()) && line.contains(&years.1.to_string()), "{line}");
        assert!(!folder.path().join("data").exists(), "nothing was made");
    }
}

#[test]
fn a_key_of_another_certificate_stops_the_start_and_so_does_a_file_without_one() {
    let folder = folder();
    certificate(folder.path(), (2001, 2101));
    let other = KeyPair::generate().expect("a key");
    fs::write(folder.path().join("key.pem"), other.serialize_pem()).expect("a file");
    let line = one_line(&mut start().command(folder.path()));
    assert!(line.contains("cert.pem and key.pem do not belong together"), "{line}");
    let line = one_line(&mut start().set("tls.certificate=key.pem").command(folder.path()));
    assert!(line.contains("key.pem holds no certificate"), "{line}");
}

#[tokio::test]
async fn a_new_certificate_is_shown_after_sighup_and_open_connections_stay() {
    let folder = folder();
    let first = certificate(folder.path(), (2001, 2101));
    let server = start().serve(folder.path());
    let open = client(&server, first.clone());
    open.hello(HelloRequest::default()).await.expect("an answer");
    // An invalid certificate changes nothing.
    certificate(folder.path(), (2001, 2002));
    server.signal("HUP");
    server.log.until("the last one is still shown");
    client(&server, first.clone()).hello(HelloRequest::default()).await.expect("an answer");
    let second = certificate(folder.path(), (2001, 2100));
    server.signal("HUP");
    server.log.until("the certificate is loaded again");
    client(&server, second).hello(HelloRequest::default()).await.expect("an answer");
    client(&server, first).hello(HelloRequest::default()).await.expect_err("the first is shown no more");
    open.hello(HelloRequest::default()).await.expect("the open connection goes on");
}
