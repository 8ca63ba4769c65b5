//! An HTTP/1.1 connection. The request that uses it also drives it, so that an answer wakes no other task; a request
//! that is given up closes it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::workload::socket::{Counters, Dialer, Transport};
use crate::workload::{Answer, Ending, Traffic};

#[derive(Debug)]
pub(super) struct Session {
    dialer: Dialer,
    counters: Arc<Counters>,
    /// Empty while a request uses it, and after the connection has ended. Boxed, because each request moves it out and
    /// in again.
    link: RefCell<Option<Box<Link>>>,
}

#[derive(Debug)]
struct Link {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Empty after it has ended.
    connection: Option<http1::Connection<TokioIo<Transport>, Full<Bytes>>>,
}

impl Session {
    pub(super) async fn open(dialer: Dialer) -> anyhow::Result<Self> {
        let counters = Arc::default();
        let link = Link::open(&dialer, &counters).await?;
        Ok(Self { dialer, counters, link: RefCell::new(Some(link)) })
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }

    pub(super) async fn request(&self, request: Request<Bytes>) -> Answer {
        let request = request.map(Full::new);
        let mut sent_at = Instant::now();
        let idle = match self.link.take() {
            Some(mut link) => link.is_ready().await.then_some(link),
            None => None,
        };
        let mut link = match idle {
            Some(link) => {
                sent_at = Instant::now();
                link
            }
            None => match Link::open(&self.dialer, &self.counters).await {
                Ok(link) => link,
                Err(_) => return ended(sent_at, None, CONNECTION),
            },
        };
        let mut first_byte_at = None;
        match link.exchange(request, &mut first_byte_at).await {
            Ok(status) => {
                let answer = ended(sent_at, first_byte_at, status.as_u16());
                if link.connection.is_some() {
                    self.link.replace(Some(link));
                }
                answer
            }
            Err(error) => ended(sent_at, first_byte_at, ending(&error)),
        }
    }
}

impl Link {
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
        while !body.is_end_stream() {
            match with(&mut self.connection, body.frame()).await {
                None => break,
                Some(frame) => drop(frame?),
            }
        }
        Ok(status)
    }
}

type Connection = Option<http1::Connection<TokioIo<Transport>, Full<Bytes>>>;

fn drive(connection: &mut Connection, cx: &mut std::task::Context<'_>) {
    if let Some(running) = connection
        && Pin::new(running).poll(cx).is_ready()
    {
        // The request ends with the same error, if any.
        *connection = None;
    }
}

/// Waits for `future`, driving the connection first, so that what it has read is available.
async fn with<F: Future>(connection: &mut Connection, future: F) -> F::Output {
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
