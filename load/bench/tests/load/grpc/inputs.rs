//! Wrong input: one line before any load runs, with the error and a right form.

use bench::cli::grpc::describe;

use super::support::{Certified, arguments, echo, everything, proto, refusal, serve};

const CALL: &str = "testing.Echo/Call";

#[tokio::test]
async fn data_that_does_not_fit_names_the_field_and_what_it_wants() {
    let address = serve(everything()).await;
    let interop = "grpc.testing.TestService/UnaryCall";
    for (method, data, line) in [
        (CALL, r#"{"count": "abc"}"#, r#"count: wants a uint32, got "abc""#),
        (CALL, r#"{"count": -1}"#, "count: wants a uint32, got -1"),
        (CALL, r#"{"count": 1.5}"#, "count: wants a uint32, got 1.5"),
        (CALL, r#"{"count": [1]}"#, "count: wants a uint32, got [1]"),
        (CALL, r#"{"payload": "§"}"#, r#"payload: wants bytes in base64, got "§""#),
        (CALL, r#"{"cuont": 1}"#, "cuont: no such field; testing.Message has count, fail, payload, delay_ms"),
        (CALL, "5", "wants an object (testing.Message), got 5"),
        (interop, r#"{"response_size": "abc"}"#, r#"response_size: wants an int32, got "abc""#),
        (interop, r#"{"payload": {"body": true}}"#, "payload.body: wants bytes in base64, got true"),
        (
            "grpc.testing.TestService/StreamingOutputCall",
            r#"{"responseParameters": [{"size": 1}, {"size": "x"}]}"#,
            r#"responseParameters[1].size: wants an int32, got "x""#,
        ),
        (
            "grpc.testing.TestService/StreamingOutputCall",
            r#"{"response_parameters": {}}"#,
            "response_parameters: wants a list of grpc.testing.ResponseParameters, got {}",
        ),
        ("testing.Echo/Join", r#"[{}, {"count": true}]"#, "[1].count: wants a uint32, got true"),
        ("testing.Echo/Join", "{}\n7", "[1]: wants an object (testing.Message), got 7"),
    ] {
        assert_eq!(refusal(address, method, &["--data", data]).await, format!("--data does not fit: {line}"));
    }
}

#[tokio::test]
async fn data_that_is_none_is_told_apart_from_data_that_does_not_fit() {
    let address = serve(everything()).await;
    for (method, data, line) in [
        (CALL, "{", "--data is not JSON: EOF while parsing an object at line 1 column 1"),
        (CALL, "", "--data holds no message; write {} for an empty one"),
        (CALL, "{} {}", "--data holds 2 messages; this method takes one"),
        ("testing.Echo/Join", "[]", "--data holds no message; write {} for an empty one"),
        (CALL, "@/nowhere", "--data @/nowhere: No such file or directory (os error 2)"),
    ] {
        assert_eq!(refusal(address, method, &["--data", data]).await, line);
    }
    let line = refusal(address, CALL, &["--data", r#"{"count": {{nmber}}}"#]).await;
    assert!(line.starts_with("--data: {{nmber}} at character 11 of the template: no such placeholder"), "{line}");
    let line = refusal(address, "testing.Echo/Join", &["--data", "{}", "--messages", "1000001"]).await;
    assert_eq!(line, "a request has 1000001 messages; it may have 1000000");
    let line = refusal(address, CALL, &["--data", "{}", "--messages", "2"]).await;
    assert_eq!(line, "--messages: testing.Echo/Call takes one message");
}

#[tokio::test]
async fn missing_data_is_answered_with_an_example_that_fits() {
    let address = serve(everything()).await;
    for (method, example) in [
        (CALL, r#"{"payload":"","delay_ms":0,"count":0,"fail":0}"#),
        (
            "grpc.testing.TestService/UnaryCall",
            r#"{"response_type":0,"response_size":0,"payload":{"type":0,"body":""},"response_status":{"code":0,"message":""}}"#,
        ),
    ] {
        assert_eq!(refusal(address, method, &[]).await, format!("{method} wants a message: --data '{example}'"));
        drop(super::support::workload(address, method, &["--data", example]).await);
        let described = describe(&arguments(&address, method, &["--describe"])).await.unwrap();
        assert!(described.contains(&format!("--data '{example}'\n")), "{described}");
    }
    drop(super::support::workload(address, "grpc.testing.TestService/EmptyCall", &[]).await);
}

#[tokio::test]
async fn names_that_are_not_there_are_answered_with_those_that_are() {
    let address = serve(everything()).await;
    let contract = proto();
    let by_proto = ["--proto", contract.to_str().unwrap()];
    for (method, flags, line) in [
        ("testing.Echo/Cal", &[][..], "testing.Echo has no method Cal: it has Call, Same, Late, Many, Each, Join"),
        ("testing.Echo/Cal", &by_proto, "testing.Echo has no method Cal: it has Call, Same, Late, Many, Each, Join"),
        ("testing.Ehco/Call", &by_proto, "there is no service testing.Ehco: the contract has testing.Echo"),
        ("Call", &[], r#""Call" does not name a method: write package.Service/Method"#),
        ("a b/c", &[], r#""a b/c" does not name a method: write package.Service/Method"#),
    ] {
        assert_eq!(refusal(address, method, flags).await, line);
    }
    let line = refusal(address, "testing.Ehco/Call", &[]).await;
    let expected = format!("{address}: there is no service testing.Ehco: the contract has testing.Echo, ");
    assert!(line.starts_with(&expected) && line.contains("grpc.health.v1.Health"), "{line}");
    for (outcome, line) in [
        ("cuont", "--outcome cuont: no field cuont in testing.Message; it has count, fail, payload, delay_ms"),
        ("count.x", "--outcome count.x: the field before x has no fields"),
    ] {
        assert_eq!(refusal(address, CALL, &["--data", "{}", "--outcome", outcome]).await, line);
    }
    let line = refusal(address, "grpc.testing.TestService/UnaryCall", &["--data", "{}", "--outcome", "payload"]).await;
    assert_eq!(line, "--outcome payload: this is a message: name one of its fields");
}

#[tokio::test]
async fn server_that_is_not_there_or_does_not_tell_is_named() {
    let line = refusal("127.0.0.1:1", CALL, &[]).await;
    assert_eq!(line, "cannot reach 127.0.0.1:1: Connection refused (os error 111)");
    let line = refusal(":1", CALL, &[]).await;
    assert_eq!(line, "cannot reach 127.0.0.1:1: Connection refused (os error 111)");
    let silent = serve(echo()).await;
    let line = refusal(silent, CALL, &[]).await;
    assert_eq!(line, format!("{silent}: the server does not offer reflection: name its contract with --proto FILE"));
}

#[tokio::test]
async fn addresses_that_are_none_are_refused() {
    for address in ["localhost", "http://", "ftp://a:1", "a b:1", "http://a:1/path", "host:99999", ":", ""] {
        let line = refusal(address, CALL, &[]).await;
        let right =
            format!("{address:?} is not an address: write host:port, :port, http://host:port or https://host:port");
        assert_eq!(line, right);
    }
    let line = refusal("127.0.0.1:1", CALL, &["--insecure"]).await;
    assert_eq!(line, "--insecure is for TLS: write an https:// address");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.proto");
    std::fs::write(&bad, "syntax = \"proto3\";\nmessage A { int32 }\n").unwrap();
    let address = serve(everything()).await;
    let line = refusal(address, CALL, &["--proto", bad.to_str().unwrap()]).await;
    assert!(line.starts_with(&format!("--proto {}: ", bad.display())) && line.contains("2:19"), "{line}");
    let missing = folder.path().join("missing.proto");
    let line = refusal(address, CALL, &["--proto", missing.to_str().unwrap()]).await;
    assert!(line.starts_with(&format!("--proto {}: ", missing.display())), "{line}");
    let line = refusal("https://localhost:1", CALL, &["--ca", bad.to_str().unwrap()]).await;
    assert!(line.ends_with("bad.proto has no certificate: it must be PEM with at least one"), "{line}");
    let certified = Certified::for_localhost();
    let (ca, key) = (certified.ca.to_str().unwrap(), certified.key_file.to_str().unwrap());
    let line = refusal("https://localhost:1", CALL, &["--ca", ca, "--certificate", key, "--key-file", key]).await;
    assert!(line.ends_with("key.pem has no certificate: it must be PEM with at least one"), "{line}");
}

#[tokio::test]
async fn metadata_that_is_none_is_refused() {
    for (entry, reason) in [
        ("novalue", "write NAME:VALUE, as authorization:Bearer abc"),
        ("grpc-status:1", "not a name for metadata"),
        ("a b:1", "not a name for metadata"),
        ("a-bin:%", "not a value for this name"),
    ] {
        let line = refusal("127.0.0.1:1", CALL, &["--metadata", entry]).await;
        assert!(line.starts_with(&format!("--metadata {entry:?}: {reason}")), "{line}");
    }
}
