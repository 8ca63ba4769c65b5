//! `quire health`: its exit codes and messages, without and with TLS.

use std::{fs, io::Write as _, net::TcpListener, path::Path, thread};

use super::probe::certificate;
use crate::common::{
    NOWHERE,
    process::{self, Start},
    store::folder,
};

/// Exit code, output and errors of `quire health`.
fn health(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let ended = process::run(folder, &[&["health"], arguments].concat(), "");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (ended.status.code().expect("an exit code"), text(ended.stdout), text(ended.stderr))
}

/// Expects an exit code other than 0, one line that contains `said`, and no output.
#[track_caller]
fn fails(folder: &Path, arguments: &[&str], code: i32, said: &str) {
    let (found, output, errors) = health(folder, arguments);
    assert!(errors.starts_with("quire: ") && errors.contains(said) && errors.lines().count() == 1, "{errors}");
    assert_eq!((found, &*output), (code, ""), "{errors}");
}

#[track_caller]
fn is_healthy(folder: &Path, arguments: &[&str]) {
    assert_eq!(health(folder, arguments), (0, "healthy\n".to_owned(), String::new()));
}

#[test]
fn a_healthy_server_is_0_and_an_unhealthy_one_1_with_the_reason() {
    let folder = folder();
    let start = Start::default().set("kv.durability=log");
    let server = start.serve(folder.path());
    is_healthy(folder.path(), &[&server.address.to_string()]);
    is_healthy(folder.path(), &[&format!("http://{}", server.address)]);
    server.stop();
    fs::write(folder.path().join("data/kv/version"), "damaged").expect("a file");
    let server = start.serve(folder.path());
    fails(folder.path(), &[&server.address.to_string()], 1, "the key-value store in data/kv is damaged");
    server.stop();
}

#[test]
fn wrong_usage_is_2() {
    let folder = folder();
    fails(folder.path(), &["127.0.0.1:port"], 2, "HOST:PORT");
    fails(folder.path(), &["https://127.0.0.1:1", "--ca", "none.pem"], 2, "none.pem");
    for arguments in [&["--timeout", "soon"][..], &["--certificate", "cert.pem"], &["--all"]] {
        assert_eq!(health(folder.path(), arguments).0, 2, "{arguments:?}");
    }
}

#[test]
fn no_answer_is_3_and_so_is_one_of_another_program() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let silence = format!("no answer from http://{address} within 0.05 s");
    fails(folder.path(), &[&address, "--timeout", "50ms"], 3, &silence);
    // The connection that waits is the one that ended.
    drop(listener.accept());
    for (answer, said) in [
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "answers /healthz with status 404"),
        ("SSH-2.0-OpenSSH\r\n", "the answer is not HTTP/1.1"),
        ("HTTP/1.1 200 OK\r\n", "the answer is not HTTP/1.1"),
    ] {
        let listener = listener.try_clone().expect("the same port");
        let stub = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.write_all(answer.as_bytes()).expect("written");
            stream.shutdown(std::net::Shutdown::Write).expect("the end of the answer");
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        fails(folder.path(), &[&address], 3, said);
        stub.join().expect("the stub");
    }
    fails(folder.path(), &[NOWHERE], 3, "cannot connect to");
}

#[test]
fn a_server_with_tls_is_healthy_for_those_who_trust_it() {
    let folder = folder();
    certificate(folder.path());
    let start = Start::default().set("tls.certificate=cert.pem").set("tls.key=key.pem");
    let server = start.serve(folder.path());
    let (plain, secure) = (server.address.to_string(), format!("https://{}", server.address));
    is_healthy(folder.path(), &[&secure, "--ca", "cert.pem"]);
    fails(folder.path(), &[&secure], 3, "--ca FILE names the certificates that are");
    fails(folder.path(), &[&plain], 3, "https://");
    server.stop();

    let server = start.set("tls.client_ca=cert.pem").serve(folder.path());
    let secure = format!("https://{}", server.address);
    fails(folder.path(), &[&secure, "--ca", "cert.pem"], 3, "requires a client certificate: --certificate FILE");
    let mine = ["--certificate", "cert.pem", "--key-file", "key.pem"];
    is_healthy(folder.path(), &[&[&*secure, "--ca", "cert.pem"], &mine[..]].concat());
    server.stop();

    let server = Start::default().serve(folder.path());
    fails(folder.path(), &[&format!("https://{}", server.address), "--ca", "cert.pem"], 3, "http://");
    server.stop();
}
