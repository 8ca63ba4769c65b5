//! Lines over TCP as a load: each line is answered, in order, by a fixed number of bytes or by a line.
//!
//! A connection carries any number of requests at once; those made in one poll leave in one write. A request is sent
//! when its line is queued; if the server has closed the connection, sending begins with opening another.

mod pipe;
mod replies;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

use super::socket::{Counters, Dialer};
use super::{Answer, Session, Traffic, Values, Workload};
use crate::template::{Template, Turn};

pub use pipe::ABANDONED_MAX;
pub use replies::{LINE_BYTES_MAX, OUTCOME_BYTES_MAX, OUTCOMES_MAX, Reply};

use pipe::{Got, Pipe};
use replies::{CLOSED, CONNECTION, KIND_MIN, OTHER, OVERLONG, REPLY, Seen, UNASKED};

/// Default requests in flight on a connection; lines have no limit of their own.
pub const PIPELINED_MAX_DEFAULT: usize = 1_000;

/// A request and the form of its reply.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The request, without its line end.
    pub line: Template,
    pub line_end: &'static str,
    pub reply: Reply,
    /// Count replies by their text.
    pub outcomes: bool,
    /// Good replies; if there are any, every other counts as an error.
    pub good: Vec<Vec<u8>>,
}

#[derive(Clone, Debug)]
pub struct TcpWorkload {
    exchange: Arc<Exchange>,
    kinds: Arc<Values>,
    dialer: Dialer,
}

impl TcpWorkload {
    /// Lines to the server at this address.
    pub fn new(exchange: Exchange, address: SocketAddr) -> Self {
        let kinds = Arc::new(Values::new(OUTCOMES_MAX));
        Self { exchange: Arc::new(exchange), kinds, dialer: Dialer::plain(address) }
    }
}

impl Workload for TcpWorkload {
    type Session = TcpSession;

    async fn open(&self, _number: usize) -> anyhow::Result<TcpSession> {
        let session = TcpSession {
            workload: self.clone(),
            counters: Arc::default(),
            pipe: RefCell::new(None),
            opening: Mutex::new(()),
        };
        session.reopen().await?;
        Ok(session)
    }

    fn label(&self, ending: u16) -> String {
        match ending {
            CONNECTION => "connection".into(),
            CLOSED => "closed".into(),
            OVERLONG => "overlong".into(),
            UNASKED => "unasked".into(),
            REPLY => "reply".into(),
            OTHER => "other".into(),
            kind => format!("reply {}", self.kinds.value(kind - KIND_MIN).unwrap_or_default().escape_ascii()),
        }
    }
}

#[derive(Debug)]
pub struct TcpSession {
    workload: TcpWorkload,
    counters: Arc<Counters>,
    pipe: RefCell<Option<Pipe>>,
    /// Held while a connection is opened, so that only one of the requests that find it closed opens another.
    opening: Mutex<()>,
}

impl TcpSession {
    fn usable(&self) -> Option<Pipe> {
        self.pipe.borrow().as_ref().filter(|pipe| pipe.is_open()).cloned()
    }

    async fn reopen(&self) -> anyhow::Result<Pipe> {
        let _opening = self.opening.lock().await;
        if let Some(pipe) = self.usable() {
            return Ok(pipe);
        }
        let transport = self.workload.dialer.dial(Arc::clone(&self.counters)).await?;
        let exchange = &self.workload.exchange;
        let seen = exchange.outcomes.then(|| Seen::new(Arc::clone(&self.workload.kinds), exchange.good.clone()));
        let (pipe, driver) = Pipe::new(transport, exchange.reply, seen);
        tokio::spawn(driver);
        self.pipe.replace(Some(pipe.clone()));
        Ok(pipe)
    }
}

impl Session for TcpSession {
    async fn request(&self, turn: Turn) -> Answer {
        let mut opened_at = None;
        loop {
            let pipe = if let Some(pipe) = self.usable() {
                pipe
            } else {
                let began = *opened_at.get_or_insert_with(Instant::now);
                let Ok(pipe) = self.reopen().await else { return Answer::failed(began, CONNECTION) };
                pipe
            };
            let exchange = &self.workload.exchange;
            let queued = pipe.send(|output| {
                exchange.line.render(turn, output);
                output.push_str(exchange.line_end);
            });
            if let Some((queued_at, reply)) = queued {
                let sent_at = opened_at.unwrap_or(queued_at);
                return match reply.await {
                    Ok(Got { first_byte_at, done_at, ending }) => Answer { sent_at, first_byte_at, done_at, ending },
                    Err(_) => Answer::failed(sent_at, CLOSED),
                };
            }
        }
    }

    fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }
}

impl Drop for TcpSession {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.borrow().as_ref() {
            pipe.close();
        }
    }
}
