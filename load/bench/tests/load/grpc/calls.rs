//! Calls of every shape: their messages, endings and counts.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bench::template::Turn;
use bench::tls::TlsArgs;
use bench::workload::grpc::{Endings, GrpcSession, GrpcWorkload, OWN_ENDINGS_FIRST, Requests, Shape, Target, Traces};
use bench::workload::socket::REST;
use bench::workload::{Ending, Session as _, Workload as _};
use prost::Message as _;
use quire_rpc::server::{Answer, Call, Later, RefusedService};
use quire_rpc::{Request, Response, Server, Status, Streaming};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_server::{Echo, EchoServer};

use super::support::{
    Certified, Proxy, arguments, echo, ending, everything, once, one_stream_at_a_time, proto, refusal, serve, turn,
    workload,
};

#[tokio::test]
async fn every_shape_is_called_by_reflection_and_by_proto() {
    let address = serve(everything()).await;
    let contract = proto();
    for contract in [&[][..], &["--proto", contract.to_str().unwrap()]] {
        for (method, data, outcome, expected) in [
            ("testing.Echo/Call", r#"{"count": 7}"#, "count", "count=7"),
            ("testing.Echo/Many", r#"{"count": 3, "payload": "YQ=="}"#, "count", "count=3"),
            ("testing.Echo/Join", r#"[{"payload": "YQ=="}, {}, {}]"#, "count", "count=3"),
            ("testing.Echo/Each", "{\"count\": 1}\n{\"count\": 2}", "count", "count=2"),
            ("/testing.Echo.Call", r#"{"payload": "YWI"}"#, "payload", "payload=2 bytes"),
        ] {
            let flags = [contract, &["--data", data, "--outcome", outcome]].concat();
            assert_eq!(ending(address, method, &flags).await, expected, "{method} {contract:?}");
            assert_eq!(ending(address, method, &flags[..flags.len() - 2]).await, "OK", "{method} {contract:?}");
        }
    }
}

#[tokio::test]
async fn every_protocol_and_codec_ends_every_shape_alike() {
    let address = serve(everything()).await;
    for (protocol, codec) in
        [("grpc", "json"), ("grpc-web", "proto"), ("grpc-web", "json"), ("connect", "proto"), ("connect", "json")]
    {
        for (method, data, expected) in [
            ("testing.Echo/Call", r#"{"count": 7, "payload": "YQ=="}"#, "count=7"),
            ("testing.Echo/Call", r#"{"count": {{number 7}}}"#, "count=7"),
            ("testing.Echo/Many", r#"{"count": 3}"#, "count=3"),
            ("testing.Echo/Join", r#"[{"payload": "YQ=="}, {}, {}]"#, "count=3"),
            ("testing.Echo/Each", r#"[{"count": 1}, {"count": 2}]"#, "count=2"),
            ("testing.Echo/Call", r#"{"fail": 5}"#, "NOT_FOUND"),
            ("testing.Echo/Many", r#"{"count": 1, "fail": 9}"#, "FAILED_PRECONDITION"),
            ("testing.Echo/Join", r#"[{"fail": 14}]"#, "UNAVAILABLE"),
        ] {
            let spoken = ["--protocol", protocol, "--codec", codec, "--data", data];
            let flags = [&spoken[..], &["--outcome", "count"]].concat();
            let said = format!("{protocol} {codec} {method} {data}");
            assert_eq!(ending(address, method, &flags).await, expected, "{said}");
            let unread = if expected.starts_with("count") { "OK" } else { expected };
            assert_eq!(ending(address, method, &spoken).await, unread, "{said}");
        }
    }
}

#[tokio::test]
async fn messages_of_a_call_are_repeated() {
    let address = serve(everything()).await;
    let flags = ["--data", r#"[{"payload": "YQ=="}, {}]"#, "--messages", "500", "--outcome", "count"];
    assert_eq!(ending(address, "testing.Echo/Join", &flags).await, "count=1000");
}

#[tokio::test]
async fn stream_is_read_to_its_end() {
    let address = serve(everything()).await;
    let flags = ["--data", r#"{"count": 1000, "payload": "YWFhYWFhYWFhYWFh"}"#];
    let workload = workload(address, "testing.Echo/Many", &flags).await;
    let session = workload.open(0).await.unwrap();
    let answer = session.request(turn(0)).await;
    assert!(answer.first_byte_at.is_some_and(|at| at < answer.done_at), "{answer:?}");
    assert!(session.traffic().received_bytes > 12_000, "{:?}", session.traffic());
}

#[tokio::test]
async fn ending_is_the_status_and_all_but_ok_are_errors() {
    let address = serve(everything()).await;
    for (fail, name) in [(0, "OK"), (5, "NOT_FOUND"), (9, "FAILED_PRECONDITION"), (14, "UNAVAILABLE"), (99, "UNKNOWN")]
    {
        for (method, data) in [
            ("testing.Echo/Call", format!(r#"{{"fail": {fail}}}"#)),
            ("testing.Echo/Many", format!(r#"{{"fail": {fail}, "count": 1}}"#)),
            ("testing.Echo/Join", format!(r#"[{{"fail": {fail}}}]"#)),
        ] {
            let (answer, label) = once(&workload(address, method, &["--data", &data]).await).await;
            assert_eq!((label.as_str(), answer.ending.is_error), (name, fail != 0), "{method}");
        }
    }
    assert_eq!(ending(address, "grpc.testing.TestService/UnimplementedCall", &[]).await, "UNIMPLEMENTED");
}

/// Answers only calls with the right metadata and deadline.
struct Picky;

impl Echo for Picky {
    async fn call(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        let metadata = request.metadata();
        if metadata.get("x-key") != Some("a:b") || metadata.get_bin("x-bin") != Some(vec![1, 2, 3]) {
            return Err(Status::permission_denied(format!("{metadata:?}")));
        }
        if request.deadline().is_none() {
            return Err(Status::failed_precondition("no deadline"));
        }
        Ok(Response::new(request.into_inner()))
    }

    fn same(&self, call: Call<'_, Message>) -> Answer<impl Later + use<>> {
        call.later(|_| ready(Err(Status::unimplemented(""))))
    }

    async fn late(&self, _: Request<Message>) -> Result<Response<Message>, Status> {
        std::future::pending().await
    }

    type ManyStream = Streaming<Message>;

    async fn many(&self, _: Request<Message>) -> Result<Response<Streaming<Message>>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn join(&self, _: Request<Streaming<Message>>) -> Result<Response<Message>, Status> {
        Err(Status::unimplemented(""))
    }

    type EachStream = Streaming<Message>;

    async fn each(&self, _: Request<Streaming<Message>>) -> Result<Response<Streaming<Message>>, Status> {
        Err(Status::unimplemented(""))
    }
}

#[tokio::test]
async fn metadata_and_deadline_reach_the_server() {
    let address = serve(Server::builder().add_service(EchoServer::new(Picky))).await;
    let contract = proto();
    let plain = ["--proto", contract.to_str().unwrap(), "--data", "{}"];
    assert_eq!(ending(address, "testing.Echo/Call", &plain).await, "PERMISSION_DENIED");
    let flags = [&plain[..], &["--metadata", "X-Key: a:b", "--metadata", "x-bin:AQID"]].concat();
    assert_eq!(ending(address, "testing.Echo/Call", &flags).await, "FAILED_PRECONDITION");
    let flags = [&flags[..], &["--deadline", "30s"]].concat();
    assert_eq!(ending(address, "testing.Echo/Call", &flags).await, "OK");
    let flags = [&plain[..], &["--deadline", "20ms"]].concat();
    assert_eq!(ending(address, "testing.Echo/Late", &flags).await, "DEADLINE_EXCEEDED");
}

#[tokio::test]
async fn calls_have_traces_by_whose_ids_the_slowest_are_found() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let see = Arc::clone(&seen);
    let look = move |_: &str, request: &mut Request<()>| {
        see.lock().unwrap().push(request.trace());
        Ok(())
    };
    let address = serve(everything().interceptor(look)).await;
    let contract = proto();
    let plain = ["--proto", contract.to_str().unwrap(), "--data", "{}"];
    for (flags, is_traced) in [(&[][..], false), (&["--trace", "1"], true)] {
        let workload = workload(address, "testing.Echo/Call", &[&plain[..], flags].concat()).await;
        let session = workload.open(0).await.unwrap();
        for number in 0..3 {
            let answer = session.request(turn(number)).await;
            session.measured(number, &answer);
        }
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        let mut seen: Vec<String> =
            seen.into_iter().flatten().map(|trace| trace.traceparent()[3..35].to_owned()).collect();
        let slowest = workload.traces.iter().flat_map(Traces::slowest).map(|(_, id)| id);
        let mut slowest: Vec<String> = slowest.collect();
        seen.sort_unstable();
        slowest.sort_unstable();
        assert_eq!((seen.len(), &seen), (if is_traced { 3 } else { 0 }, &slowest));
    }
}

#[tokio::test]
async fn compressed_requests_are_smaller_on_the_wire() {
    let address = serve(everything()).await;
    let data = format!(r#"{{"payload": "{}"}}"#, "AAAA".repeat(25_000));
    for (flags, is_small) in [(&[][..], false), (&["--compression", "gzip"], true), (&["--compression", "zstd"], true)]
    {
        for method in ["testing.Echo/Call", "testing.Echo/Join"] {
            let workload =
                workload(address, method, &[flags, &["--data", &data, "--outcome", "payload"]].concat()).await;
            let session = workload.open(0).await.unwrap();
            let answer = session.request(turn(0)).await;
            assert_eq!(workload.label(answer.ending.number), "payload=75000 bytes");
            assert_eq!(session.traffic().sent_bytes < 10_000, is_small, "{method} {flags:?} {:?}", session.traffic());
        }
    }
}

#[tokio::test]
async fn placeholders_are_filled_in_for_each_turn() {
    let address = serve(everything()).await;
    let flags = ["--data", r#"{"count": {{number}}, "delay_ms": "{{client}}"}"#, "--outcome", "count"];
    let workload = workload(address, "testing.Echo/Call", &flags).await;
    let session = workload.open(0).await.unwrap();
    for number in [0, 5, 12_345] {
        let answer = session.request(turn(number)).await;
        assert_eq!(workload.label(answer.ending.number), format!("count={number}"));
    }
}

#[tokio::test]
async fn row_that_fits_no_message_is_an_error_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    let rows: String = (0..200).map(|n| if n == 150 { "x\n".to_owned() } else { format!("{n}\n") }).collect();
    std::fs::write(&path, format!("n\n{rows}")).unwrap();
    let address = serve(everything()).await;
    let flags = ["--data", r#"{"count": "{{row.n}}"}"#, "--rows", path.to_str().unwrap()];
    for method in ["testing.Echo/Call", "testing.Echo/Join"] {
        let workload = workload(address, method, &flags).await;
        let session = workload.open(0).await.unwrap();
        assert_eq!(workload.label(session.request(turn(149)).await.ending.number), "OK");
        let unsent = session.request(turn(150)).await;
        assert_eq!(
            (workload.label(unsent.ending.number).as_str(), unsent.ending.is_error),
            ("data does not fit", true)
        );
    }
}

#[tokio::test]
async fn outcome_has_a_number_a_value_up_to_a_limit() {
    let address = serve(everything()).await;
    let flags = ["--data", r#"{"count": {{number}}}"#, "--outcome", "count"];
    let workload = workload(address, "testing.Echo/Call", &flags).await;
    let session = workload.open(0).await.unwrap();
    let mut last = String::new();
    for number in 0..300 {
        let ending = session.request(turn(number)).await.ending;
        assert!(!ending.is_error && ending.number < bench::workload::ENDINGS_MAX);
        last = workload.label(ending.number);
    }
    assert_eq!(last, "count: other");
}

#[tokio::test]
async fn encoded_messages_are_sent_and_answers_told_apart_by_their_bytes() {
    let address = serve(echo()).await;
    let target = Target::parse(&address.to_string(), &TlsArgs::default()).unwrap();
    let classify = |bytes: &[u8]| Endings::own(u16::from(Message::decode(bytes).unwrap().count != 0), false);
    let endings = Endings::classified(["sold".to_owned(), "refused".to_owned()], Arc::new(classify));
    let make = |turn: Turn| {
        let count = u32::try_from(turn.number % 2).unwrap();
        (None, Message { count, ..Message::default() }.encode_to_vec().into())
    };
    let workload = GrpcWorkload::new(target, "/testing.Echo/Call", Shape::UNARY, Requests::Made(Arc::new(make)));
    let workload = GrpcWorkload { endings, ..workload };
    let session = workload.open(0).await.unwrap();
    for (number, label) in [(0, "sold"), (1, "refused"), (2, "sold")] {
        assert_eq!(workload.label(session.request(turn(number)).await.ending.number), label);
    }
    assert_eq!(Endings::own(1, true), Ending { number: OWN_ENDINGS_FIRST + 1, is_error: true });
}

#[tokio::test]
async fn each_call_of_a_mix_goes_to_its_own_method() {
    let address = serve(echo()).await;
    let target = Target::parse(&address.to_string(), &TlsArgs::default()).unwrap();
    let paths = ["/testing.Echo/Call", "/testing.Echo/Nothing"].map(quire_rpc::client::Path::named);
    let make = move |turn: Turn| (Some(paths[usize::try_from(turn.number % 2).unwrap()].clone()), Vec::new().into());
    let workload = GrpcWorkload::new(target, "/testing.Echo/Call", Shape::UNARY, Requests::Made(Arc::new(make)));
    let session = workload.open(0).await.unwrap();
    for (number, label) in [(0, "OK"), (1, "UNIMPLEMENTED"), (2, "OK")] {
        assert_eq!(workload.label(session.request(turn(number)).await.ending.number), label);
    }
}

#[tokio::test]
async fn https_is_spoken_with_trust_and_refused_without() {
    let certified = Certified::for_localhost();
    let port = serve(everything().tls(Arc::clone(&certified.server))).await.port();
    let address = format!("https://localhost:{port}");
    let data = ["--data", r#"{"payload": "YQ=="}"#];
    let trusting = [&data[..], &["--ca", certified.ca.to_str().unwrap()]].concat();
    let workload = workload(&address, "testing.Echo/Call", &trusting).await;
    let session = workload.open(0).await.unwrap();
    assert_eq!(workload.label(session.request(turn(0)).await.ending.number), "OK");
    // The handshake is counted too.
    assert!(session.traffic().received_bytes > 500, "{:?}", session.traffic());
    assert_eq!(ending(&address, "testing.Echo/Call", &[&data[..], &["--insecure"]].concat()).await, "OK");

    let other = Certified::for_localhost();
    let distrusting = [&data[..], &["--ca", other.ca.to_str().unwrap()]].concat();
    let refused = refusal(&address, "testing.Echo/Call", &distrusting).await;
    assert!(refused.starts_with(&format!("cannot reach localhost:{port}: invalid peer certificate")), "{refused}");
}

/// A session whose requests of even turns are answered in an hour, and those of odd turns at once.
async fn slow_and_quick(address: SocketAddr, method: &str, data: &str) -> (GrpcWorkload, GrpcSession) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, "ms,us\n1000000,2000000000\n0,0\n").unwrap();
    let workload = workload(address, method, &["--data", data, "--rows", path.to_str().unwrap()]).await;
    let session = workload.open(0).await.unwrap();
    (workload, session)
}

const LATE: (&str, &str) = ("testing.Echo/Late", r#"{"delay_ms": {{row.ms}}}"#);
const DUPLEX: (&str, &str) =
    ("grpc.testing.TestService/FullDuplexCall", r#"{"response_parameters": [{"interval_us": {{row.us}}}]}"#);

#[tokio::test]
async fn certificate_is_shown_to_a_server_that_asks_for_one() {
    let certified = Certified::for_localhost();
    let port = serve(everything().tls(Arc::clone(&certified.server_for_known))).await.port();
    let address = format!("https://localhost:{port}");
    let (ca, key) = (certified.ca.to_str().unwrap(), certified.key_file.to_str().unwrap());
    let anonymous = ["--data", "{}", "--ca", ca];
    let known = [&anonymous[..], &["--certificate", ca, "--key-file", key]].concat();
    assert_eq!(ending(&address, "testing.Echo/Call", &known).await, "OK");
    let refused = refusal(&address, "testing.Echo/Call", &anonymous).await;
    assert!(refused.starts_with(&format!("cannot reach localhost:{port}: ")), "{refused}");
}

#[tokio::test]
async fn older_reflection_is_asked_where_there_is_no_newer() {
    let older = RefusedService {
        name: "grpc.reflection.v1.ServerReflection",
        methods: &["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"],
        descriptors: &[],
        status: Status::unimplemented("unknown service"),
    };
    let address = serve(echo().reflection().add_service(older)).await;
    assert_eq!(ending(address, "testing.Echo/Call", &["--data", "{}"]).await, "OK");
    let refused = refusal(address, "testing.Nothing/Call", &["--data", "{}"]).await;
    assert!(
        refused.starts_with(&format!("{address}: there is no service testing.Nothing: the contract has testing.Echo")),
        "{refused}"
    );
}

#[tokio::test]
async fn session_connects_again_after_its_connection_broke() {
    let proxy = Proxy::to(serve(everything()).await).await;
    for (method, data) in [LATE, DUPLEX] {
        let (workload, session) = slow_and_quick(proxy.address, method, data).await;
        let mut waiting = std::pin::pin!(session.request(turn(0)));
        let before = tokio::select! {
            biased;
            answer = &mut waiting => panic!("{method}: {answer:?}"),
            quick = session.request(turn(1)) => quick,
        };
        assert_eq!(workload.label(before.ending.number), "OK");
        let traffic = session.traffic();
        proxy.cut();
        let broken = waiting.await;
        assert_eq!((workload.label(broken.ending.number).as_str(), broken.ending.is_error), ("UNAVAILABLE", true));
        assert!(broken.first_byte_at.is_none());
        assert_eq!(workload.label(session.request(turn(3)).await.ending.number), "OK");
        let after = session.traffic();
        assert!(after.sent_bytes > traffic.sent_bytes && after.received_bytes > traffic.received_bytes);
    }
}

#[tokio::test]
async fn dropped_request_frees_its_place() {
    let address = serve(everything().limits(one_stream_at_a_time())).await;
    for (method, data) in [LATE, DUPLEX] {
        let (workload, session) = slow_and_quick(address, method, data).await;
        for number in 0..3 {
            let dropped = tokio::time::timeout(Duration::from_millis(20), session.request(turn(2 * number))).await;
            assert!(dropped.is_err(), "{method}: {dropped:?}");
            let quick = tokio::time::timeout(Duration::from_secs(20), session.request(turn(2 * number + 1))).await;
            assert_eq!(workload.label(quick.expect("the place is free").ending.number), "OK", "{method}");
        }
    }
}

#[tokio::test]
async fn requests_during_an_outage_fail_and_keep_their_place_a_while() {
    let proxy = Proxy::to(serve(everything()).await).await;
    let (workload, session) = slow_and_quick(proxy.address, LATE.0, LATE.1).await;
    proxy.stop().await;
    for _ in 0..5 {
        let began = Instant::now();
        let answer = session.request(turn(1)).await;
        assert_eq!((workload.label(answer.ending.number).as_str(), answer.ending.is_error), ("UNAVAILABLE", true));
        assert!(began.elapsed() >= REST && answer.done_at + REST <= Instant::now(), "{answer:?}");
    }
}

#[tokio::test]
async fn load_says_what_was_asked_for_and_keeps_secrets() {
    let address = serve(everything()).await;
    let flags =
        ["--data", "{}", "--metadata", "authorization:Bearer secret", "--compression", "gzip", "--deadline", "2s"];
    let (_, load) = bench::cli::grpc::prepare(&arguments(&address, "testing.Echo/Call", &flags)).await.unwrap();
    assert_eq!((load.protocol.as_str(), load.target), ("grpc", address.to_string()));
    assert_eq!(load.what, "testing.Echo/Call");
    let settings: Vec<_> = load.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(settings, ["compression=gzip", "data={}", "deadline=2s", "metadata=authorization"]);
    let flags = ["--data", "{}", "--protocol", "connect", "--codec", "json"];
    let (_, load) = bench::cli::grpc::prepare(&arguments(&address, "testing.Echo/Call", &flags)).await.unwrap();
    assert_eq!((load.protocol.as_str(), load.settings["codec"].as_str()), ("connect", "json"));
}
