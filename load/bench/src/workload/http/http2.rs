//! An HTTP/2 connection, shared by requests: a channel of our own engine.

use std::time::Instant;

use quire_rpc::client::{Address, Channel, HttpFailure, HttpRequest};

use super::http1::{CLOSED, CONNECTION, RESET, ended};
use super::request::Requests;
use crate::workload::channel::{rest, settings};
use crate::workload::socket::Dialer;
use crate::workload::{Answer, Traffic};

/// Requests in flight on a connection: the number that every server should allow (RFC 9113, section 6.5.2).
pub const STREAMS_MAX_DEFAULT: usize = 100;

#[derive(Debug)]
pub(super) struct Session(Channel);

impl Session {
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
