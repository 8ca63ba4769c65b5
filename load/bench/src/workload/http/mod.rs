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

pub use connection::{STREAMS_MAX_DEFAULT, get, probe};
pub use request::{RequestArgs, Requests};

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

    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }
}

impl Workload for HttpWorkload {
    type Session = HttpSession;

    async fn open(&self, _number: usize) -> anyhow::Result<HttpSession> {
        let requests = Arc::clone(&self.requests);
        Ok(if self.http2 {
            HttpSession::Http2(Http2Session::open(&self.dialer, &requests).await?, requests)
        } else {
            HttpSession::Http1(Http1Session::open(self.dialer.clone()).await?, requests)
        })
    }

    fn label(&self, ending: u16) -> String {
        connection::label(ending)
    }
}

/// A connection and its requests.
#[derive(Debug)]
pub enum HttpSession {
    Http1(Http1Session, Arc<Requests>),
    Http2(Http2Session, Arc<Requests>),
}

impl Session for HttpSession {
    async fn request(&self, turn: Turn) -> Answer {
        match self {
            Self::Http1(session, requests) => match requests.make(turn) {
                Some(request) => session.request(request).await,
                None => connection::ended(Instant::now(), None, UNSENDABLE),
            },
            Self::Http2(session, requests) => match requests.make_http2(turn) {
                Some(request) => session.request(&request).await,
                None => connection::ended(Instant::now(), None, UNSENDABLE),
            },
        }
    }

    fn traffic(&self) -> Traffic {
        match self {
            Self::Http1(session, _) => session.traffic(),
            Self::Http2(session, _) => session.traffic(),
        }
    }
}
