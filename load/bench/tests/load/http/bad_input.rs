//! Input that cannot work is reported in one line before any load.

use super::server::{Server, answer, certificate, refused, says, script};

#[test]
fn urls_that_are_none_are_refused_with_the_reason() {
    let cases = [
        ("ftp://localhost/", "the scheme ftp is unknown"),
        ("http://", "is not HOST or HOST:PORT"),
        ("http:///path", "is not HOST or HOST:PORT"),
        ("http://localhost:99999/", "the port must be a number from 1 to 65535"),
        ("http://localhost:/", "the port must be a number from 1 to 65535"),
        ("http://a b/", "is not HOST or HOST:PORT"),
        ("http://me:secret@localhost/", "a user name belongs in a header"),
        ("http://{{row.host}}/", "placeholders belong in the path and the query"),
    ];
    for (url, wanted) in cases {
        let message = refused(&[url]);
        assert!(message.contains(wanted) && message.contains("http://HOST:PORT/PATH"), "{url}: {message}");
    }
}

#[test]
fn requests_that_are_none_are_refused_with_the_reason() {
    let cases: [(&[&str], &str); 9] = [
        (&["-H", "no colon"], "header `no colon`: the colon is missing: write `Name: value`"),
        (&["-H", "a b: c"], "its name has characters that HTTP does not allow"),
        (&["-H", "a: b\u{7}"], "its value holds a control character"),
        (&["-H", "Content-Length: 5"], "it is set from the body"),
        (&["-H", "a: {{row.x}}"], "in the header a: {{row.x}} at character 1 of the template: there are no rows"),
        (&["-X", "GET IT"], "`GET IT` is not a method"),
        (&["--data", "{{random 1}}"], "in the body: {{random 1}}"),
        (&["--data", "@/no/such"], "--data @/no/such: No such file"),
        (&["-m", "2"], "HTTP/1.1 carries one request at a time"),
    ];
    for (arguments, wanted) in cases {
        let message = refused(&[&["http://127.0.0.1:1/"], arguments].concat());
        assert!(message.contains(wanted), "{arguments:?}: {message}");
    }
    let rows = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rows.path(), "isbn,title\n1,2\n").unwrap();
    let message = refused(&["http://127.0.0.1:1/{{row.titel}}", "--rows", rows.path().to_str().unwrap()]);
    assert!(message.contains("in the URL") && message.contains("the columns are isbn, title"), "{message}");
}

#[test]
fn a_port_where_nothing_listens_is_named() {
    for url in ["127.0.0.1:1", ":1/path", "http://:1", "localhost:1"] {
        let message = refused(&[url]);
        assert!(message.starts_with("nothing listens at ") && message.ends_with(":1"), "{url}: {message}");
    }
    assert_eq!(refused(&["http://127.0.0.1:1/"]), "nothing listens at 127.0.0.1:1");
    assert!(refused(&["http://no-such-host.invalid/"]).starts_with("cannot find an address for no-such-host.invalid"));
}

#[test]
fn a_certificate_that_no_root_signed_is_refused_with_advice() {
    let (tls, _folder, authority) = certificate(b"http/1.1");
    let server = Server::start(false, Some(tls), |_| answer(200, ""));
    let (_, _other_folder, other) = certificate(b"http/1.1");
    let url = format!("https://{}/", server.address);
    let message = refused(&[&url, "--ca", other.to_str().unwrap()]);
    assert!(message.contains("TLS: invalid peer certificate") && message.contains("--ca FILE"), "{message}");
    let wrong_name = format!("https://localhost:{}/", server.address.port());
    let message = refused(&[&wrong_name, "--ca", authority.to_str().unwrap()]);
    assert!(message.contains("invalid peer certificate: certificate not valid for name \"localhost\""), "{message}");
}

#[test]
fn authorities_that_are_none_are_refused() {
    let message = refused(&["https://127.0.0.1:1/", "--ca", "/no/such.pem"]);
    assert!(message.starts_with("cannot read certificates from /no/such.pem"), "{message}");
    let empty = tempfile::NamedTempFile::new().unwrap();
    let message = refused(&["https://127.0.0.1:1/", "--ca", empty.path().to_str().unwrap()]);
    assert!(message.contains("has no certificate: it must be PEM"), "{message}");
}

#[test]
fn a_server_without_tls_is_told_from_one_with_it() {
    let (_, _folder, authority) = certificate(b"http/1.1");
    let server = Server::http1(|_| answer(200, ""));
    let message = refused(&[&format!("https://{}/", server.address), "--ca", authority.to_str().unwrap()]);
    assert!(message.contains("does the server speak TLS on this port?"), "{message}");
}

#[test]
fn a_server_without_http2_is_told_from_one_with_it() {
    let server = Server::http1(|_| answer(200, ""));
    let message = refused(&[&server.url("/"), "--http2"]);
    assert!(message.contains("does not speak HTTP/2: it closes the connection; leave out --http2"), "{message}");
    let address = script(vec![says("HTTP/1.1 505 HTTP Version Not Supported\r\n\r\n")]);
    let message = refused(&[&format!("http://{address}/"), "--http2"]);
    assert!(message.contains("speaks HTTP/1.1 only; leave out --http2"), "{message}");
    let (tls, _folder, authority) = certificate(b"http/1.1");
    let server = Server::start(false, Some(tls), |_| answer(200, ""));
    let url = format!("https://{}/", server.address);
    let message = refused(&[&url, "--http2", "--ca", authority.to_str().unwrap()]);
    assert!(message.contains("TLS: ") && message.contains("does not offer this version of HTTP"), "{message}");
    let address = script(vec![says("220 mail.example\r\n")]);
    assert!(refused(&[&format!("http://{address}/"), "--http2"]).contains("does not speak HTTP/2"));
}
