//! HTTP/1.1 and HTTP/2 as loads: one request at a time on a connection of the first, many on one of the second.
//!
//! A request is sent when it is handed to the connection; if the server has closed it, sending begins with opening
//! another. Bodies are read to their end and counted, not kept.

mod connection;
mod request;

use std::sync::Arc;
use std::time::Instant;

use super::socket::Dialer;
use super::{Answer, Session, Traffic, Workload};
use crate::template::Turn;

use connection::{Http1Session, Http2Session, UNSENDABLE};
use request::Unsendable;

pub use connection::{STREAMS_MAX_DEFAULT, get, probe};
pub use request::{RequestArgs, Requests};

/// An HTTP load.
#[derive(Clone, Debug)]
pub struct HttpWorkload {
    requests: Arc<Requests>,
    dialer: Dialer,
    http2: bool,
}

impl HttpWorkload {
    /// Requests to the dialer's server; `https` needs a dialer with TLS.
    pub fn new(requests: Requests, dialer: Dialer, http2: bool) -> Self {
        Self { requests: Arc::new(requests), dialer, http2 }
    }

    /// Maximum requests in flight on a connection.
    pub fn in_flight_max(&self) -> usize {
        if self.http2 { STREAMS_MAX_DEFAULT } else { 1 }
    }

    /// The requests.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// The dialer of connections.
    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }
}

impl Workload for HttpWorkload {
    type Session = HttpSession;

    async fn open(&self, _number: usize) -> anyhow::Result<HttpSession> {
        let link = if self.http2 {
            Link::Http2(Http2Session::open(&self.dialer, &self.requests).await?)
        } else {
            Link::Http1(Http1Session::open(self.dialer.clone()).await?)
        };
        Ok(HttpSession { requests: Arc::clone(&self.requests), link })
    }

    fn label(&self, ending: u16) -> String {
        connection::label(ending)
    }
}

/// A connection of an HTTP load.
#[derive(Debug)]
pub struct HttpSession {
    requests: Arc<Requests>,
    link: Link,
}

#[derive(Debug)]
enum Link {
    Http1(Http1Session),
    Http2(Http2Session),
}

impl Session for HttpSession {
    async fn request(&self, turn: Turn) -> Answer {
        let ended = match &self.link {
            Link::Http1(session) => match self.requests.make(turn) {
                Ok(request) => Ok(session.request(request).await),
                Err(unsendable) => Err(unsendable),
            },
            Link::Http2(session) => match self.requests.make_http2(turn) {
                Ok(request) => Ok(session.request(&request).await),
                Err(unsendable) => Err(unsendable),
            },
        };
        ended.unwrap_or_else(|Unsendable| connection::ended(Instant::now(), None, UNSENDABLE))
    }

    fn traffic(&self) -> Traffic {
        match &self.link {
            Link::Http1(session) => session.traffic(),
            Link::Http2(session) => session.traffic(),
        }
    }
}
