//! HTTP/1.1 and HTTP/2 as a load: one request at a time on a connection of the first, many on one of the second.
//!
//! A request is sent when it is handed to the connection; if there is none, because the server has closed it, sending
//! begins with opening another. Bodies are read to their end and counted, not kept. Must not know when requests are
//! due.

mod ending;
mod get;
mod http1;
mod http2;
mod probe;
mod request;

use std::sync::Arc;

use super::socket::{Counters, Dialer};
use super::{Answer, Session, Traffic, Workload};
use crate::template::Turn;

use ending::{Stopwatch, UNSENDABLE};

pub use get::get;
pub use probe::probe;
pub use request::{Asked, Requests};

/// Requests at once on a connection of HTTP/2 unless the server says otherwise: what every server should allow
/// (RFC 9113, section 6.5.2).
pub const STREAMS_MAX_DEFAULT: usize = 100;

/// An HTTP load.
#[derive(Clone, Debug)]
pub struct HttpWorkload {
    requests: Arc<Requests>,
    dialer: Dialer,
    http2: bool,
}

impl HttpWorkload {
    /// Requests to a server whose address is known; `tls` is wanted for `https`.
    pub fn new(requests: Requests, dialer: Dialer, http2: bool) -> Self {
        Self { requests: Arc::new(requests), dialer, http2 }
    }

    /// Requests at once that a connection carries.
    pub fn in_flight_max(&self) -> usize {
        if self.http2 { STREAMS_MAX_DEFAULT } else { 1 }
    }

    /// What is asked for.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }
}

impl Workload for HttpWorkload {
    type Session = HttpSession;

    async fn open(&self, _number: usize) -> anyhow::Result<HttpSession> {
        let counters = Arc::new(Counters::default());
        let link = if self.http2 {
            Link::Http2(http2::Session::open(self.dialer.clone(), Arc::clone(&counters)).await?)
        } else {
            Link::Http1(http1::Session::open(self.dialer.clone(), Arc::clone(&counters)).await?)
        };
        Ok(HttpSession { requests: Arc::clone(&self.requests), counters, link })
    }

    fn label(&self, ending: u16) -> String {
        ending::label(ending)
    }
}

/// A connection of an HTTP load.
#[derive(Debug)]
pub struct HttpSession {
    requests: Arc<Requests>,
    counters: Arc<Counters>,
    link: Link,
}

#[derive(Debug)]
enum Link {
    Http1(http1::Session),
    Http2(http2::Session),
}

impl Session for HttpSession {
    async fn request(&self, turn: Turn) -> Answer {
        let Ok(request) = self.requests.make(turn) else {
            return Stopwatch::start().failed(UNSENDABLE);
        };
        match &self.link {
            Link::Http1(session) => session.request(request).await,
            Link::Http2(session) => session.request(request).await,
        }
    }

    fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }
}
