//! Connections: HTTP/1.1, HTTP/2, which is a channel of our own engine, and a probe before a load.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, HOST};
use http_body_util::{BodyExt as _, Empty, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use quire_rpc::client::{Address, Channel, HttpFailure, HttpRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::request::Requests;
use crate::workload::socket::{CONNECT_TIME_MAX, Counters, Dialer, Transport, rest, settings};
use crate::workload::{Answer, Ending, Traffic};

/// An HTTP/1.1 connection. The request that uses it also drives it, so that an answer wakes no other task; a request
/// that is given up closes it.
#[derive(Debug)]
pub struct Http1Session {
    dialer: Dialer,
    counters: Arc<Counters>,
    /// Empty while a request uses it, and after the connection has ended. Boxed, because each request moves it out and
    /// in again.
    connection: RefCell<Option<Box<Http1Connection>>>,
}

#[derive(Debug)]
struct Http1Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Empty after it has ended.
    connection: Driver,
}

impl Http1Session {
    pub(super) async fn open(dialer: Dialer) -> anyhow::Result<Self> {
        let counters = Arc::default();
        let link = Http1Connection::open(&dialer, &counters).await?;
        Ok(Self { dialer, counters, connection: RefCell::new(Some(link)) })
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }

    pub(super) async fn request(&self, request: Request<Bytes>) -> Answer {
        let request = request.map(Full::new);
        let mut sent_at = Instant::now();
        let idle = match self.connection.take() {
            Some(mut link) => link.is_ready().await.then_some(link),
            None => None,
        };
        let mut link = match idle {
            Some(link) => {
                sent_at = Instant::now();
                link
            }
            None => match Http1Connection::open(&self.dialer, &self.counters).await {
                Ok(link) => link,
                Err(_) => return ended(sent_at, None, CONNECTION),
            },
        };
        let mut first_byte_at = None;
        match link.exchange(request, &mut first_byte_at).await {
            Ok(status) => {
                let answer = ended(sent_at, first_byte_at, status.as_u16());
                if link.connection.is_some() {
                    self.connection.replace(Some(link));
                }
                answer
            }
            Err(error) => ended(sent_at, first_byte_at, ending(&error)),
        }
    }
}

impl Http1Connection {
    async fn open(dialer: &Dialer, counters: &Arc<Counters>) -> anyhow::Result<Box<Self>> {
        let transport = dialer.dial(Arc::clone(counters)).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(transport)).await?;
        Ok(Box::new(Self { sender, connection: Some(connection) }))
    }

    /// Waits until the last exchange is over; returns true if the next request can be sent.
    async fn is_ready(&mut self) -> bool {
        poll_fn(|cx| {
            drive(&mut self.connection, cx);
            if self.connection.is_none() {
                return Poll::Ready(false);
            }
            self.sender.poll_ready(cx).map(|ready| ready.is_ok())
        })
        .await
    }

    async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        first_byte_at: &mut Option<Instant>,
    ) -> Result<http::StatusCode, hyper::Error> {
        let head = self.sender.send_request(request);
        let response = with(&mut self.connection, head).await?;
        *first_byte_at = Some(Instant::now());
        let status = response.status();
        let mut body = response.into_body();
        while let Some(frame) = with(&mut self.connection, body.frame()).await {
            frame?;
        }
        Ok(status)
    }
}

type Driver = Option<http1::Connection<TokioIo<Transport>, Full<Bytes>>>;

fn drive(connection: &mut Driver, cx: &mut std::task::Context<'_>) {
    if let Some(running) = connection
        && Pin::new(running).poll(cx).is_ready()
    {
        // The request ends with the same error, if any.
        *connection = None;
    }
}

/// Waits for `future`, driving the connection first, so that what it has read is available.
async fn with<F: Future>(connection: &mut Driver, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        drive(connection, cx);
        future.as_mut().poll(cx)
    })
    .await
}

fn ending(error: &hyper::Error) -> u16 {
    if error.is_parse() { PROTOCOL } else { CLOSED }
}

/// A status is its own number; these are below all statuses.
pub(super) const CONNECTION: u16 = 0;
pub(super) const CLOSED: u16 = 1;
pub(super) const PROTOCOL: u16 = 2;
pub(super) const RESET: u16 = 3;
pub(super) const UNSENDABLE: u16 = 4;

/// Lowest status.
const STATUS_MIN: u16 = 100;
/// Lowest status that counts as an error.
const ERROR_STATUS_MIN: u16 = 400;

pub(super) fn label(ending: u16) -> String {
    match ending {
        CONNECTION => "connection".into(),
        CLOSED => "closed".into(),
        PROTOCOL => "protocol".into(),
        RESET => "reset".into(),
        UNSENDABLE => "unsendable".into(),
        status => status.to_string(),
    }
}

/// A request that ends now.
pub(super) fn ended(sent_at: Instant, first_byte_at: Option<Instant>, number: u16) -> Answer {
    let is_error = !(STATUS_MIN..ERROR_STATUS_MIN).contains(&number);
    Answer { sent_at, first_byte_at, done_at: Instant::now(), ending: Ending { number, is_error } }
}

/// Requests in flight on a connection: the number that every server should allow (RFC 9113, section 6.5.2).
pub const STREAMS_MAX_DEFAULT: usize = 100;

#[derive(Debug)]
pub struct Http2Session(Channel);

impl Http2Session {
    pub(super) async fn open(dialer: &Dialer, requests: &Requests) -> anyhow::Result<Self> {
        let address = vec![Address::Tcp(dialer.address())];
        let mut builder =
            Channel::builder(&requests.origin())?.resolver(address).settings(settings(STREAMS_MAX_DEFAULT));
        if let Some(config) = dialer.tls() {
            builder = builder.tls(config)?;
        }
        Ok(Self(builder.connect().await?))
    }

    pub(super) async fn request(&self, request: &HttpRequest) -> Answer {
        let sent_at = Instant::now();
        let answer = self.0.http(request).await;
        let number = match answer.status {
            Ok(status) => status,
            Err(HttpFailure::Unreachable) => CONNECTION,
            Err(HttpFailure::Closed) => CLOSED,
            Err(_) => RESET,
        };
        let ended = ended(sent_at, answer.head_at, number);
        if number == CONNECTION {
            rest().await;
        }
        ended
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.0.traffic().into()
    }
}

/// The client's preface with empty SETTINGS (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const FRAME_HEAD_BYTES: usize = 9;
const SETTINGS: u8 = 4;
/// Timeout of the server's SETTINGS.
const SETTINGS_TIME_MAX: Duration = Duration::from_secs(5);

/// Begins TLS on a connection if the dialer has it, and for HTTP/2 checks that the server speaks it. Sends no request,
/// which could have effects.
pub async fn probe(stream: TcpStream, dialer: &Dialer, http2: bool) -> anyhow::Result<()> {
    let address = dialer.address();
    let wrapped = tokio::time::timeout(CONNECT_TIME_MAX, dialer.wrap(stream, Arc::default())).await;
    let Ok(wrapped) = wrapped else {
        anyhow::bail!("{address} accepts the connection and sends nothing for {}s", CONNECT_TIME_MAX.as_secs());
    };
    let mut transport = wrapped?;
    if !http2 {
        return Ok(());
    }
    let mut head = [0; FRAME_HEAD_BYTES];
    let exchange = async {
        transport.write_all(PREFACE).await?;
        transport.flush().await?;
        transport.read_exact(&mut head).await
    };
    match tokio::time::timeout(SETTINGS_TIME_MAX, exchange).await {
        Ok(Ok(_)) if head[3] == SETTINGS => Ok(()),
        Ok(Ok(_)) if head.starts_with(b"HTTP/1.") => {
            anyhow::bail!("{address} speaks HTTP/1.1 only; leave out --http2")
        }
        Ok(Ok(_)) => anyhow::bail!("{address} does not speak HTTP/2; it begins with `{}`", head.escape_ascii()),
        Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => {
            anyhow::bail!("{address} does not speak HTTP/2: it closes the connection; leave out --http2")
        }
        Ok(Err(error)) => anyhow::bail!("{address} does not speak HTTP/2: {error}"),
        Err(_) => anyhow::bail!(
            "{address} does not speak HTTP/2: it sends nothing for {}s; leave out --http2",
            SETTINGS_TIME_MAX.as_secs()
        ),
    }
}

/// The body of a successful answer in this media type on a new connection, which is closed after it; `host` is the Host
/// header.
pub async fn get(
    transport: Transport,
    host: &str,
    resource: &str,
    accepted: &str,
    bytes_max: usize,
) -> anyhow::Result<Bytes> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(transport)).await?;
    // It ends with its sender; the request reports its errors.
    tokio::spawn(connection);
    let request = Request::get(resource).header(HOST, host).header(ACCEPT, accepted).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    ensure!(answer.status().is_success(), "it answers {resource} with '{}'", answer.status());
    let body = Limited::new(answer.into_body(), bytes_max).collect().await;
    let too_large = |error: &(dyn std::error::Error + 'static)| error.is::<LengthLimitError>();
    body.map(http_body_util::Collected::to_bytes).map_err(|error| match error {
        error if too_large(&*error) => anyhow!("its answer is larger than {bytes_max} bytes"),
        error => anyhow!(error),
    })
}
