//! Watch of a server's health on a subchannel's connection, which is ready only while the server reports that it
//! serves.
//!
//! Implements: gRPC's "Client-Side Health Checking" (A17).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::multiplexer::WATCH;
use crate::client::call::attempt::{Attempt, Body, Failure, Form, ReplyTo, StreamResponse};
use crate::client::call::path::Path;
use crate::client::channel::subchannel::{State, Subchannel};
use crate::client::settings::{ConnectBackoff, ConnectError, Settings};
use crate::message::framing;
use crate::message::streaming::Streaming;
use crate::message::transcode::Reading;
use crate::metadata::Metadata;
use crate::protocol::Codec;
use crate::status::{Code, Status};

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(prost::Message)]
struct Check {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(prost::Message)]
struct Health {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;

/// A watch under way, and the pause after one that soon ended. Ends with the backoff for another; or without one if the
/// server does not report its health, and so counts as healthy.
pub(super) type Watch = Pin<Box<dyn Future<Output = Option<ConnectBackoff>> + Send>>;

/// Begins a watch, which sets the subchannel's state: its call, and the future that reads the response.
pub(super) fn watch(
    subchannel: &Arc<Subchannel>,
    settings: &Settings,
    service: &str,
    mut backoff: ConnectBackoff,
) -> (Attempt, Watch) {
    static PATH: Path = Path::new("/grpc.health.v1.Health/Watch");
    let mut framed = Vec::new();
    framing::encode(Check { service: service.to_owned() }, None, &mut framed);
    let (sender, receiver) = oneshot::channel();
    let (message_bytes_max, connect_timeout) = (settings.message_bytes_max, settings.connect_timeout);
    let attempt = Attempt {
        number: WATCH,
        path: (&PATH).into(),
        dialect: settings.dialect(true, Codec::Proto),
        form: Form::OwnPost,
        metadata: Metadata::new(),
        deadline: None,
        waits_for_ready: false,
        compression: None,
        message_bytes_max,
        body: Body::Message(framed),
        reply_to: ReplyTo::Stream(sender),
    };
    let subchannel = Arc::clone(subchannel);
    let watch = async move {
        let first = timeout(connect_timeout, first(receiver, message_bytes_max));
        let late = |_| Err(Status::deadline_exceeded("no report in time"));
        let ended = match first.await.unwrap_or_else(late) {
            Ok((report, reports)) => {
                let reported_at = Instant::now();
                let ended = follow(&subchannel, report, reports).await;
                if reported_at.elapsed() >= backoff.first {
                    subchannel.set_state(State::Connecting);
                    backoff.reset();
                    return Some(backoff);
                }
                ended
            }
            Err(ended) if ended.code() == Code::Unimplemented => {
                subchannel.set_state(State::Ready);
                return None;
            }
            Err(ended) => ended,
        };
        subchannel.set_failing(ConnectError::new(format!("the watch of the server's health ended: {ended}")));
        sleep(backoff.pause()).await;
        Some(backoff)
    };
    (attempt, Box::pin(watch))
}

/// The first report, and the others.
async fn first(
    receiver: oneshot::Receiver<Result<StreamResponse, Failure>>,
    message_bytes_max: usize,
) -> Result<(Health, Streaming<Health>), Status> {
    let lost = |_| Err(Status::unavailable("the connection ended").into());
    let response = receiver.await.unwrap_or_else(lost).map_err(|failure: Failure| failure.status)?;
    let reading = Reading { encoding: response.encoding, json: None, message_bytes_max, budget: None };
    let mut reports = Streaming::new(response.inbox, reading);
    let report = next(&mut reports).await?;
    Ok((report, reports))
}

async fn next(reports: &mut Streaming<Health>) -> Result<Health, Status> {
    reports.message().await?.ok_or_else(|| Status::unavailable("the server ended it"))
}

/// Sets the subchannel's state by each report, until there are no more.
async fn follow(subchannel: &Subchannel, mut report: Health, mut reports: Streaming<Health>) -> Status {
    loop {
        if report.status == SERVING {
            subchannel.set_state(State::Ready);
        } else {
            subchannel.set_failing(ConnectError::new("the server reports that it does not serve"));
        }
        report = match next(&mut reports).await {
            Ok(report) => report,
            Err(ended) => return ended,
        };
    }
}
