//! Servers to load: one that hyper drives and that records its requests, and scripts of bytes on a bare socket.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bench::cli::http::{HttpArgs, prepare};
use bench::template::Turn;
use bench::workload::http::{HttpSession, HttpWorkload};
use bench::workload::{Answer, Session as _, Workload as _};
use bytes::Bytes;
use clap::Parser;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

pub(crate) type Got = Request<Bytes>;
type Handler = dyn Fn(&Got) -> Response<Full<Bytes>> + Send + Sync;

/// A server on a thread of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) requests: Arc<Mutex<Vec<Got>>>,
    _stop: oneshot::Sender<()>,
}

#[derive(Clone)]
struct Shared {
    handler: Arc<Handler>,
    requests: Arc<Mutex<Vec<Got>>>,
    http2: bool,
}

pub(crate) fn answer(status: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(body.into())).expect("a response")
}

impl Server {
    pub(crate) fn http1(handler: impl Fn(&Got) -> Response<Full<Bytes>> + Send + Sync + 'static) -> Self {
        Self::start(false, None, handler)
    }

    pub(crate) fn start(
        http2: bool,
        tls: Option<Arc<ServerConfig>>,
        handler: impl Fn(&Got) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let listener = StdListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("non-blocking");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let connections = Arc::new(AtomicUsize::new(0));
        let shared = Shared { handler: Arc::new(handler), requests: Arc::default(), http2 };
        let server = Self {
            address,
            connections: Arc::clone(&connections),
            requests: Arc::clone(&shared.requests),
            _stop: stop,
        };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                let accepting = async {
                    loop {
                        let (stream, _) = listener.accept().await.expect("a connection");
                        connections.fetch_add(1, Ordering::SeqCst);
                        let (shared, tls) = (shared.clone(), tls.clone());
                        tokio::spawn(async move {
                            match tls {
                                None => shared.serve(stream).await,
                                Some(tls) => {
                                    if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                                        shared.serve(stream).await;
                                    }
                                }
                            }
                        });
                    }
                };
                tokio::select! { _ = stopped => {}, () = accepting => {} }
            });
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Shared {
    async fn serve(self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let http2 = self.http2;
        let service = service_fn(move |request: Request<Incoming>| {
            let shared = self.clone();
            async move {
                let (head, body) = request.into_parts();
                // Never answered: the caller gives up.
                let Ok(body) = body.collect().await else { return std::future::pending().await };
                let got = Request::from_parts(head, body.to_bytes());
                if got.uri().path() == "/never" {
                    return std::future::pending().await;
                }
                let response = (shared.handler)(&got);
                shared.requests.lock().expect("no panic").push(got);
                Ok::<_, Infallible>(response)
            }
        });
        let io = TokioIo::new(io);
        if http2 {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(io, service).await;
        } else {
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
        }
    }
}

type Step = Box<dyn FnOnce(&mut StdStream) + Send>;

/// A bare socket with a step for each connection that sends a request; its head has been read by then.
pub(crate) fn script(steps: Vec<Step>) -> SocketAddr {
    let listener = StdListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut listener, last) = (Some(listener), steps.len() - 1);
        for (number, step) in steps.into_iter().enumerate() {
            // The probe before a load sends nothing and goes.
            let mut stream =
                std::iter::repeat_with(|| listener.as_ref().expect("a listener").accept().expect("a connection").0)
                    .find_map(|mut stream| read_head(&mut stream).then_some(stream))
                    .expect("it repeats without end");
            // A client with the last answer finds no one listening.
            listener.take_if(|_| number == last);
            step(&mut stream);
        }
    });
    address
}

/// Reads a request head; returns false if the connection ended first.
pub(crate) fn read_head(stream: &mut StdStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return false;
        }
        head.push(byte[0]);
    }
    true
}

pub(crate) fn says(text: &'static str) -> Step {
    Box::new(move |stream| stream.write_all(text.as_bytes()).expect("a write"))
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    http: HttpArgs,
}

/// Flags as the command line gives them.
pub(crate) fn flags(arguments: &[&str]) -> HttpArgs {
    Flags::parse_from(std::iter::once(&"http").chain(arguments)).http
}

pub(crate) fn refused(arguments: &[&str]) -> String {
    let error = prepare(&flags(arguments)).expect_err("a refusal");
    let message = format!("{error:#}");
    assert!(!message.contains('\n'), "{message:?}");
    message
}

/// One connection of a load, with its runtime.
pub(crate) struct Client {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) workload: HttpWorkload,
    pub(crate) session: HttpSession,
}

impl Client {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        let (workload, _) = prepare(&flags(arguments)).expect("a load");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let session = runtime.block_on(workload.open(0)).expect("a connection");
        Self { runtime, workload, session }
    }

    pub(crate) fn request(&self, number: u64) -> Answer {
        let answer = self.runtime.block_on(self.session.request(turn(number)));
        assert!(answer.sent_at <= answer.done_at);
        assert!(answer.first_byte_at.is_none_or(|at| answer.sent_at <= at && at <= answer.done_at));
        answer
    }

    /// Makes a request and returns its ending.
    pub(crate) fn ending(&self, number: u64) -> String {
        self.label(&self.request(number))
    }

    pub(crate) fn label(&self, answer: &Answer) -> String {
        self.workload.label(answer.ending.number)
    }
}

pub(crate) fn turn(number: u64) -> Turn {
    Turn { number, client: 1, worker: 2 }
}

/// A self-signed certificate for 127.0.0.1, as a server's configuration and as a file for `--ca`.
pub(crate) fn certificate(protocol: &[u8]) -> (Arc<ServerConfig>, tempfile::TempDir, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, made.cert.pem()).expect("a file");
    let key = tokio_rustls::rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a configuration");
    config.alpn_protocols = vec![protocol.to_vec()];
    (Arc::new(config), folder, path)
}
