//! Integration with tower: layers around the server's calls, and its calls inside axum.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{Running, text};
use axum::Router;
use axum::routing::get;
use http::{HeaderName, HeaderValue};
use quire_rpc::client::{Channel, Codec, HttpChannel, HttpVersion, Protocol, Settings};
use quire_rpc::server::HttpCalls;
use quire_rpc::{Body, Code, Limits, Peer, Request, Server, Status, unfold};
use rpc_testing::EchoService;
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;
use rpc_testing::proto::echo_server::EchoServer;
use tokio::net::TcpListener;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_http::set_header::SetRequestHeaderLayer;
use tower_http::trace::TraceLayer;

/// Every protocol and codec of a channel.
fn dialects() -> Vec<Settings> {
    let mut all = Vec::new();
    for codec in [Codec::Proto, Codec::Json] {
        for protocol in [Protocol::Grpc, Protocol::GrpcWeb, Protocol::Connect] {
            all.push(Settings { protocol, codec, ..Settings::default() });
            if protocol != Protocol::Grpc {
                all.push(Settings { protocol, codec, http: HttpVersion::Http1, ..Settings::default() });
            }
        }
    }
    all
}

fn many_texts(count: u32) -> impl quire_rpc::Stream<Item = Message> + Send + 'static {
    unfold(0, move |sent| async move { (sent < count).then(|| (text("ab"), sent + 1)) })
}

/// Calls a method of each kind, and one that fails.
async fn every_shape_works(client: &EchoClient, has_duplex: bool) {
    let mut request = Request::new(text("hello"));
    request.metadata_mut().append("echo-name", "Ada").unwrap();
    let reply = client.call(request).await.unwrap();
    assert_eq!((reply.metadata().get("echo-name"), reply.trailers().get("echo-name")), (Some("Ada"), Some("Ada")));
    assert_eq!(reply.into_inner().payload, b"hello");

    let large = Message { payload: vec![7; 1_000_000], ..Message::default() };
    assert_eq!(client.call(large.clone()).await.unwrap().into_inner().payload, large.payload);

    let mut many = client.many(Message { count: 100, ..text("again") }).await.unwrap().into_inner();
    let mut count = 0;
    while let Some(message) = many.message().await.unwrap() {
        assert_eq!(message.payload, b"again");
        count += 1;
    }
    assert_eq!(count, 100);

    let joined = client.join(many_texts(1000)).await.unwrap().into_inner();
    assert_eq!((joined.count, joined.payload.len()), (1000, 2000));
    if has_duplex {
        let (sender, mut replies) = crate::support::open(client).await;
        for _ in 0..10 {
            sender.send(text("ping")).await.unwrap();
            assert_eq!(replies.message().await.unwrap().unwrap().payload, b"ping");
        }
        drop(sender);
        assert!(replies.message().await.unwrap().is_none());
    }
    let status = client.call(Message { fail: 5, ..text("") }).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "told to fail"));
}

#[tokio::test]
async fn calls_of_every_shape_and_protocol_pass_the_layers_of_a_server() {
    let name = HeaderName::from_static("echo-layer");
    let layers = ServiceBuilder::new()
        .layer(TraceLayer::new_for_grpc())
        .layer(SetRequestHeaderLayer::overriding(name, HeaderValue::from_static("was here")));
    let server = Running::with(Limits::default(), |builder| builder.layer(layers)).await;
    for settings in dialects() {
        let has_duplex = settings.http == HttpVersion::Http2;
        let client = EchoClient::new(server.channel(settings).await);
        every_shape_works(&client, has_duplex).await;
        let reply = client.call(text("")).await.unwrap();
        assert_eq!(reply.metadata().get("echo-layer"), Some("was here"));
    }
    assert_eq!(server.server.calls(), 0);
    let counts = server.stopped().await;
    assert_eq!((counts.get("/testing.Echo/Call OK"), counts.get("/testing.Echo/Call NOT_FOUND")), (30, 10));
}

#[tokio::test]
async fn a_layer_that_gives_up_fails_the_call_in_its_own_protocol_and_once() {
    let server =
        Running::with(Limits::default(), |builder| builder.layer(tower::timeout::TimeoutLayer::new(Duration::ZERO)))
            .await;
    for settings in dialects() {
        let client = EchoClient::new(server.channel(settings).await);
        let status = client.late(crate::support::NEVER).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, "request timed out"));
    }
    assert_eq!(server.server.calls(), 0);
    let counts = server.stopped().await;
    assert_eq!(counts.get("/testing.Echo/Late CANCELLED"), 10);
    assert_eq!(counts.get("/testing.Echo/Late UNKNOWN"), 0);
}

/// Refuses every call with a status.
#[derive(Clone)]
pub(crate) struct Refusing;

impl Service<http::Request<Body>> for Refusing {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = Ready<Result<http::Response<Body>, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        ready(Err(Status::unauthenticated("no token")))
    }
}

#[tokio::test]
async fn a_layer_that_fails_with_a_status_fails_the_call_with_it() {
    let layer = tower::layer::layer_fn(|_: HttpCalls| Refusing);
    let server = Running::with(Limits::default(), |builder| builder.layer(layer)).await;
    for settings in dialects() {
        let client = EchoClient::new(server.channel(settings).await);
        let status = client.call(text("")).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "no token"));
    }
    assert_eq!(server.stopped().await.get("/testing.Echo/Call UNAUTHENTICATED"), 10);
}

#[tokio::test]
async fn of_two_layers_the_first_is_outermost_and_a_limit_holds_calls_back() {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let counting = ServiceBuilder::new().map_request(move |mut request: http::Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        request.headers_mut().insert("echo-first", HeaderValue::from_static("1"));
        request
    });
    let second =
        SetRequestHeaderLayer::if_not_present(HeaderName::from_static("echo-first"), HeaderValue::from_static("2"));
    let limited = ServiceBuilder::new().layer(second).concurrency_limit(2);
    let server = Running::with(Limits::default(), |builder| builder.layer(counting).layer(limited)).await;
    let client = server.client().await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.call(text("at once")).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().metadata().get("echo-first"), Some("1"));
    }
    assert_eq!(seen.load(Ordering::Relaxed), 20);
}

/// An axum application with calls beside its pages, on its own port.
async fn axum_with_calls() -> String {
    let calls = Server::builder().add_service(EchoServer::new(EchoService)).build().into_service();
    let app = Router::new().route("/about", get(async || "An echo.\n")).fallback_service(calls);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

#[tokio::test]
async fn axum_answers_calls_of_every_shape_and_protocol() {
    let url = axum_with_calls().await;
    for settings in dialects() {
        let has_duplex = settings.http == HttpVersion::Http2;
        let channel = Channel::builder(&url).unwrap().settings(settings).connect().await.unwrap();
        every_shape_works(&EchoClient::new(channel), has_duplex).await;
    }
}

#[tokio::test]
async fn a_call_in_axum_keeps_its_deadline_and_its_reader_holds_its_sender_back() {
    let client = EchoClient::new(Channel::builder(&axum_with_calls().await).unwrap().connect().await.unwrap());
    let mut late = Request::new(crate::support::NEVER);
    late.set_timeout(Duration::from_millis(50));
    assert_eq!(client.late(late).await.unwrap_err().code(), Code::DeadlineExceeded);
    let large = Message { payload: vec![7; 50_000], ..Message::default() };
    let messages = unfold(0, move |sent| {
        let large = large.clone();
        async move { (sent < 200).then(|| (large, sent + 1)) }
    });
    let mut replies = client.each(messages).await.unwrap().into_inner();
    let mut count = 0;
    while let Some(message) = replies.message().await.unwrap() {
        assert_eq!(message.payload.len(), 50_000);
        count += 1;
    }
    assert_eq!(count, 200);
}

fn json_call(body: &'static str) -> http::Request<String> {
    let request = http::Request::post("/testing.Echo/Call").header("content-type", "application/json");
    request.body(body.to_owned()).unwrap()
}

#[tokio::test]
async fn a_server_answers_requests_that_never_saw_a_socket() {
    let service = Server::builder()
        .interceptor(|_: &str, request: &mut Request<()>| {
            let peer = request.peer().and_then(|peer| peer.address);
            let tenant = request.extensions().get::<&str>().copied().unwrap_or("none");
            let value = format!("{tenant} {}", peer.is_some());
            request.metadata_mut().insert("echo-who", &value).map_err(|error| Status::internal(error.to_string()))
        })
        .add_service(EchoServer::new(EchoService))
        .build()
        .into_service();
    let mut request = json_call(r#"{"payload":"aGk="}"#);
    let mut peer = Peer::default();
    peer.address = Some(([127, 0, 0, 1], 1).into());
    request.extensions_mut().insert(Arc::new(peer));
    request.extensions_mut().insert("acme");
    let response = service.clone().oneshot(request).await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["echo-who"]),
        (http::StatusCode::OK, &"acme true".parse().unwrap())
    );
    let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1000).await.unwrap();
    assert_eq!(body, r#"{"payload":"aGk="}"#);

    let grpc = http::Request::post("/testing.Echo/Call").header("content-type", "application/grpc");
    let response = service.clone().oneshot(grpc.body(String::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), http::StatusCode::UNSUPPORTED_MEDIA_TYPE, "gRPC has no trailers over HTTP/1.1");
    let page = service.oneshot(http::Request::get("/none").body(String::new()).unwrap()).await.unwrap();
    assert_eq!(page.status(), http::StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn calls_of_every_shape_and_protocol_pass_the_layers_of_a_channel() {
    let server = Running::new(Limits::default()).await;
    for settings in dialects() {
        let has_duplex = settings.http == HttpVersion::Http2;
        let name = HeaderName::from_static("echo-layer");
        let layers = ServiceBuilder::new()
            .layer(TraceLayer::new_for_grpc())
            .layer(SetRequestHeaderLayer::overriding(name, HeaderValue::from_static("was here")))
            .concurrency_limit(2);
        let client = EchoClient::new(server.channel(settings).await.layered(layers));
        every_shape_works(&client, has_duplex).await;
        let reply = client.call(text("")).await.unwrap();
        assert_eq!(reply.metadata().get("echo-layer"), Some("was here"));
    }
    assert_eq!(server.server.calls(), 0);
}

#[tokio::test]
async fn a_layer_of_a_channel_that_gives_up_cancels_the_call_and_fails_it() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings::default()).await;
    let timeout = tower::timeout::TimeoutLayer::new(Duration::from_millis(50));
    let status = EchoClient::new(channel.layered(timeout)).late(crate::support::NEVER).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unknown, "request timed out"));
    server.counts.until(|counts| counts.get("/testing.Echo/Late CANCELLED") == 1).await;

    let mut late = Request::new(crate::support::NEVER);
    late.set_timeout(Duration::from_millis(50));
    let layered = EchoClient::new(channel.layered(tower::layer::util::Identity::new()));
    assert_eq!(layered.late(late).await.unwrap_err().code(), Code::DeadlineExceeded);
    let refusing = tower::layer::layer_fn(|_: HttpChannel| Refusing);
    let status = EchoClient::new(channel.layered(refusing)).call(text("")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "no token"));
}

#[tokio::test]
async fn of_two_layers_of_a_channel_the_last_is_outermost_and_other_clones_do_without() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings::default()).await;
    let set = |value| {
        SetRequestHeaderLayer::overriding(HeaderName::from_static("echo-layer"), HeaderValue::from_static(value))
    };
    let layered = EchoClient::new(channel.layered(set("inner")).layered(set("outer")));
    assert_eq!(layered.call(text("")).await.unwrap().metadata().get("echo-layer"), Some("inner"));
    let plain = EchoClient::new(channel).call(text("")).await.unwrap();
    assert_eq!(plain.metadata().get("echo-layer"), None);
}

#[tokio::test]
async fn a_channel_carries_any_http_and_a_stream_that_is_dropped_is_cancelled() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings::default()).await;
    let page = http::Request::get("/about").body(String::new()).unwrap();
    let response = HttpChannel::from(channel.clone()).oneshot(page).await.unwrap();
    assert_eq!((response.status(), response.version()), (http::StatusCode::OK, http::Version::HTTP_2));
    assert!(!axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1000).await.unwrap().is_empty());

    let client = EchoClient::new(channel.layered(tower::layer::util::Identity::new()));
    let (_sender, replies) = crate::support::open(&client).await;
    drop(replies);
    server.counts.until(|counts| counts.get("/testing.Echo/Each CANCELLED") == 1).await;
}

#[tokio::test]
async fn a_channel_needs_no_socket_if_a_layer_answers() {
    let server = Server::builder().add_service(EchoServer::new(EchoService)).build().into_service();
    let in_process = tower::layer::layer_fn(move |_: HttpChannel| server.clone());
    for settings in dialects().into_iter().filter(|settings| settings.http == HttpVersion::Http2) {
        let channel = Channel::builder("http://in-process").unwrap().settings(settings).connect_lazy().unwrap();
        every_shape_works(&EchoClient::new(channel.layered(&in_process)), true).await;
    }
}
