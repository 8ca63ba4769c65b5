//! A connection of HTTP/2, which requests share; a task of its own drives it.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as _;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::Mutex;

use super::ending::{CLOSED, CONNECTION, RESET, Stopwatch};
use crate::workload::Answer;
use crate::workload::socket::{Counters, Dialer, agreed_protocol};

/// What the server may send on a stream before it is read; so large that a body never waits for the client.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// What it may send on all streams.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// Largest frame the server may send.
const FRAME_BYTES_MAX: u32 = 256 << 10;

type Sender = http2::SendRequest<Full<Bytes>>;

#[derive(Debug)]
pub(super) struct Session {
    dialer: Dialer,
    counters: Arc<Counters>,
    sender: RefCell<Option<Sender>>,
    /// Held while a connection is opened, so that one of the requests that find it closed opens it.
    opening: Mutex<()>,
}

impl Session {
    pub(super) async fn open(dialer: Dialer, counters: Arc<Counters>) -> anyhow::Result<Self> {
        let session = Self { dialer, counters, sender: RefCell::new(None), opening: Mutex::new(()) };
        session.reopen().await?;
        Ok(session)
    }

    fn usable(&self) -> Option<Sender> {
        self.sender.borrow().as_ref().filter(|sender| !sender.is_closed()).cloned()
    }

    async fn reopen(&self) -> anyhow::Result<Sender> {
        let _opening = self.opening.lock().await;
        if let Some(sender) = self.usable() {
            return Ok(sender);
        }
        let transport = self.dialer.dial(Arc::clone(&self.counters)).await?;
        if agreed_protocol(&transport).is_some_and(|protocol| protocol != b"h2") {
            anyhow::bail!("{} does not offer HTTP/2", self.dialer.address());
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX)
            .handshake(TokioIo::new(transport))
            .await?;
        // It ends with its last sender; its error reaches the requests that it was carrying.
        tokio::spawn(connection);
        self.sender.replace(Some(sender.clone()));
        Ok(sender)
    }

    pub(super) async fn request(&self, request: Request<Full<Bytes>>) -> Answer {
        let mut watch = Stopwatch::start();
        let mut sender = match self.usable() {
            Some(sender) => sender,
            None => match self.reopen().await {
                Ok(sender) => sender,
                Err(_) => return watch.failed(CONNECTION),
            },
        };
        match exchange(&mut sender, request, &mut watch).await {
            Ok(status) => watch.answered(status),
            Err(_) => watch.failed(if sender.is_closed() { CLOSED } else { RESET }),
        }
    }
}

async fn exchange(
    sender: &mut Sender,
    request: Request<Full<Bytes>>,
    watch: &mut Stopwatch,
) -> Result<http::StatusCode, hyper::Error> {
    let response = sender.send_request(request).await?;
    watch.head_is_there();
    let status = response.status();
    let mut body = response.into_body();
    while !body.is_end_stream() {
        match body.frame().await {
            None => break,
            Some(frame) => drop(frame?),
        }
    }
    Ok(status)
}
