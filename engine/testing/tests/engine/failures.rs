//! The table "What a failure of the transport becomes" of docs/engine.md, row by row.

use std::error::Error;
use std::future::{pending, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quire_rpc::client::{Address, Channel, Resolver, Settings, TransportError, TransportFailure};
use quire_rpc::http2::ConnectionError;
use quire_rpc::rustls::{self, ClientConfig, RootCertStore, ServerConfig};
use quire_rpc::{Code, Reach, Request, Server, Status};
use rpc_testing::EchoService;
use rpc_testing::proto::echo_client::{self, EchoClient};
use rpc_testing::proto::echo_server::EchoServer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};

use crate::support::{NEVER, frame, in_memory, refusing, text};

/// The error of this type behind a failure of the transport.
fn cause<T: Error + 'static>(status: &Status) -> Option<&T> {
    status.transport()?.source()?.downcast_ref()
}

/// A failed call as the table has it.
fn row(status: &Status) -> (Code, Reach, Option<TransportFailure>) {
    (status.code(), status.reach(), status.transport().map(TransportError::kind))
}

/// The failure of a call on the channel.
async fn failed(builder: quire_rpc::client::Builder) -> Status {
    EchoClient::new(builder.connect_lazy().unwrap()).call(text("x")).await.unwrap_err()
}

/// A channel over pipes, whose other ends are given away.
fn piped(settings: Settings, give: impl Fn(DuplexStream) + Send + Sync + 'static) -> quire_rpc::client::Builder {
    Channel::builder("http://pipe").unwrap().settings(settings).connector(move || {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        give(theirs);
        ready(Ok(ours))
    })
}

/// A channel to a server that reads a call's head, answers with these bytes, and then closes or falls silent.
fn answered(answer: Vec<u8>, closes: bool, settings: Settings) -> quire_rpc::client::Builder {
    piped(settings, move |mut pipe| {
        let answer = answer.clone();
        tokio::spawn(async move {
            pipe.write_all(&frame(4, 0, 0, &[])).await.unwrap();
            let mut seen = Vec::new();
            while !has_call(&seen) {
                assert_ne!(pipe.read_buf(&mut seen).await.unwrap(), 0);
            }
            pipe.write_all(&answer).await.unwrap();
            if closes {
                pipe.shutdown().await.unwrap();
            }
            pending::<()>().await;
        });
    })
}

/// True if a HEADERS frame has come after the preface.
fn has_call(seen: &[u8]) -> bool {
    let mut rest = seen.get(24..).unwrap_or_default();
    while let Some((head, after)) = rest.split_first_chunk::<9>() {
        if head[3] == 1 {
            return true;
        }
        rest = after.get(u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize..).unwrap_or_default();
    }
    false
}

struct Unresolved;

impl Resolver for Unresolved {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        Err(io::Error::new(io::ErrorKind::NotFound, "no such name"))
    }
}

struct Endless;

impl Resolver for Endless {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        pending().await
    }
}

#[tokio::test]
async fn a_name_without_an_address() {
    let builder = || Channel::builder("http://shop.example").unwrap();
    for builder in [builder().resolver(Unresolved), builder().resolver(Vec::<Address>::new())] {
        let status = failed(builder).await;
        assert_eq!(row(&status), (Code::Unavailable, Reach::Untouched, Some(TransportFailure::Resolve)), "{status}");
    }
}

#[tokio::test]
async fn a_refused_connection() {
    let (_socket, address) = refusing();
    let builder = || Channel::builder(&format!("http://{address}")).unwrap();
    let status = failed(builder()).await;
    assert_eq!(row(&status), (Code::Unavailable, Reach::Untouched, Some(TransportFailure::Connect)), "{status}");
    assert_eq!(cause::<io::Error>(&status).unwrap().kind(), io::ErrorKind::ConnectionRefused);
    let error = builder().connect().await.unwrap_err();
    assert_eq!(error.transport().map(TransportError::kind), Some(TransportFailure::Connect));
    // A report of a whole chain has each reason once.
    assert!(status.source().is_none() && error.source().is_none());
    let failure = error.transport().unwrap();
    assert!(!failure.to_string().contains(&failure.source().unwrap().to_string()), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn no_connection_or_no_first_frame_in_time() {
    let (kept, _pipes) = std::sync::mpsc::channel();
    let silent = piped(Settings::default(), move |pipe| kept.send(pipe).unwrap());
    let status = failed(Channel::builder("http://shop.example").unwrap().resolver(Endless)).await;
    assert_eq!(row(&status), (Code::Unavailable, Reach::Untouched, Some(TransportFailure::Timeout)), "{status}");
    let status = failed(silent).await;
    // The call was sent already.
    assert_eq!(row(&status), (Code::Unavailable, Reach::Unanswered, Some(TransportFailure::Timeout)), "{status}");
}

#[tokio::test]
async fn tls_on_one_side_alone_or_an_unknown_certificate() {
    let made = rcgen::generate_simple_self_signed(vec!["pipe".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.into()], key).unwrap();
    let plain = Server::builder().add_service(EchoServer::new(EchoService)).build();
    let secure = Server::builder().add_service(EchoServer::new(EchoService)).tls(Arc::new(config)).build();
    let to = |server: Server| {
        piped(Settings::default(), move |pipe| {
            let server = server.clone();
            tokio::spawn(async move { server.serve_connection(pipe, quire_rpc::Peer::default(), pending()).await });
        })
    };
    let trusting =
        || Arc::new(ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    let unknown = failed(to(secure.clone()).tls(trusting()).unwrap()).await;
    assert_eq!(row(&unknown), (Code::Unavailable, Reach::Untouched, Some(TransportFailure::Tls)), "{unknown}");
    assert!(matches!(cause::<rustls::Error>(&unknown), Some(rustls::Error::InvalidCertificate(_))), "{unknown}");
    let without = failed(to(plain).tls(trusting()).unwrap()).await;
    assert_eq!(row(&without), (Code::Unavailable, Reach::Untouched, Some(TransportFailure::Tls)), "{without}");
    assert!(cause::<rustls::Error>(&without).is_some(), "{without}");
    let only = failed(to(secure)).await;
    assert_eq!(row(&only), (Code::Unavailable, Reach::Unanswered, Some(TransportFailure::Tls)), "{only}");
}

#[tokio::test]
async fn a_connection_that_the_server_closes() {
    let status = failed(answered(Vec::new(), true, Settings::default())).await;
    assert_eq!(row(&status), (Code::Unavailable, Reach::Unanswered, Some(TransportFailure::Closed)), "{status}");
}

/// A stream that is reset before its first byte.
struct Reset(DuplexStream);

impl AsyncRead for Reset {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
}

impl AsyncWrite for Reset {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn a_connection_that_breaks() {
    let builder = Channel::builder("http://pipe").unwrap().connector(async || Ok(Reset(tokio::io::duplex(64).0)));
    let status = failed(builder).await;
    assert_eq!((status.code(), row(&status).2), (Code::Unavailable, Some(TransportFailure::Io)), "{status}");
    assert_eq!(cause::<io::Error>(&status).unwrap().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_no_ping() {
    let settings = Settings { keepalive_interval: Some(Duration::from_secs(10)), ..Settings::default() };
    let status = failed(answered(Vec::new(), false, settings)).await;
    assert_eq!(row(&status), (Code::Unavailable, Reach::Unanswered, Some(TransportFailure::Keepalive)), "{status}");
}

#[tokio::test]
async fn a_server_that_breaks_a_rule() {
    let no_increment = frame(8, 0, 0, &[0; 4]);
    let status = failed(answered(no_increment, false, Settings::default())).await;
    assert_eq!(row(&status), (Code::Unavailable, Reach::Unanswered, Some(TransportFailure::Protocol)), "{status}");
    assert!(cause::<ConnectionError>(&status).is_some(), "{status}");
}

#[tokio::test]
async fn a_stream_that_the_server_resets() {
    for (error, code, reach) in [
        (7, Code::Unavailable, Reach::Untouched),
        (8, Code::Cancelled, Reach::Unanswered),
        (11, Code::ResourceExhausted, Reach::Unanswered),
        (12, Code::PermissionDenied, Reach::Unanswered),
        (1, Code::Internal, Reach::Unanswered),
    ] {
        let reset = frame(3, 0, 1, &u32::to_be_bytes(error));
        let channel = answered(reset, false, Settings::default()).connect_lazy().unwrap();
        // A raw call is not repeated.
        let request = Request::new(channel.wire_message(&[]));
        let status = channel.unary_raw(&echo_client::CALL, request).await.reply.unwrap_err();
        assert_eq!(row(&status), (code, reach, None), "{error}: {status}");
    }
}

#[tokio::test]
async fn an_http_status_and_no_grpc_status() {
    for (http, code) in [
        ("400", Code::Internal),
        ("401", Code::Unauthenticated),
        ("403", Code::PermissionDenied),
        ("404", Code::Unimplemented),
        ("429", Code::Unavailable),
        ("502", Code::Unavailable),
        ("503", Code::Unavailable),
        ("504", Code::Unavailable),
        ("500", Code::Unknown),
    ] {
        let head = frame(1, 5, 1, &[&[0x08, 3], http.as_bytes()].concat());
        let status = failed(answered(head, false, Settings::default())).await;
        assert_eq!(row(&status).0, code, "{http}: {status}");
        assert_eq!(row(&status).2, None, "{http}: {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_a_full_queue_and_a_closed_channel() {
    let server = || Server::builder().add_service(EchoServer::new(EchoService));
    let settings = Settings { calls_per_connection_max: 1, waiting_calls_max: 0, ..Settings::default() };
    let client = EchoClient::new(in_memory(server(), settings));
    let status = client.call(text("one too many")).await.unwrap_err();
    assert_eq!(row(&status), (Code::ResourceExhausted, Reach::Untouched, None), "{status}");
    let channel = in_memory(server(), Settings::default());
    let client = EchoClient::new(channel.clone());
    let mut late = Request::new(NEVER);
    late.set_timeout(Duration::from_secs(1));
    assert_eq!(row(&client.late(late).await.unwrap_err()).0, Code::DeadlineExceeded);
    channel.close().await;
    let status = client.call(text("x")).await.unwrap_err();
    assert_eq!(row(&status), (Code::Unavailable, Reach::Untouched, None), "{status}");
}
