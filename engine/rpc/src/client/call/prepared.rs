//! A call that is ready for its attempts, and one attempt from the channel to its response.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::attempt::{Attempt, Body, Failure, Form, ReplyTo, late, next_number};
use super::path::PathRef;
use crate::client::channel::Channel;
use crate::client::channel::balancer::Balancer;
use crate::client::channel::subchannel::{Command, Subchannel};
use crate::client::service_config::MethodConfig;
use crate::client::settings::{Protocol, Settings};
use crate::envelope::{Compression, Request};
use crate::message::compression::Encoding;
use crate::message::framing;
use crate::metadata::Metadata;
use crate::protocol::{self, ClientDialect};
use crate::status::Status;

/// Cancels the call if the caller drops its future.
struct CancelOnDrop<'a> {
    subchannel: &'a Subchannel,
    number: u64,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.subchannel.push(Command::Cancel(self.number));
        }
    }
}

/// Performs an attempt: hands it to a connection, or to the channel's layers, and awaits the response until the
/// deadline.
async fn perform<R>(
    channel: &Channel,
    attempt: Attempt,
    receiver: oneshot::Receiver<Result<R, Failure>>,
) -> Result<R, Failure> {
    let deadline = attempt.deadline;
    #[cfg(feature = "tower")]
    if let Some(layers) = channel.layers.as_ref().filter(|_| !matches!(attempt.form, Form::Http(_))) {
        let mut task = layers.spawn(attempt);
        let response = received(deadline, receiver).await;
        task.armed = response.is_none();
        return response.unwrap_or_else(|| Err(late().into()));
    }
    let ready;
    let subchannel: &Subchannel = match channel.balancer() {
        Balancer::PickFirst(connections) => connections.next(),
        Balancer::RoundRobin(servers) => {
            ready = servers.pick(attempt.waits_for_ready, deadline).await?;
            &ready
        }
    };
    let mut guard = CancelOnDrop { subchannel, number: attempt.number, armed: true };
    subchannel.push(Command::Start(attempt));
    let response = received(deadline, receiver).await;
    guard.armed = response.is_none();
    response.unwrap_or_else(|| Err(late().into()))
}

/// Performs the attempts that `make` makes: one, and further ones while the server has not processed any. Of all
/// attempts of a call one that the server refused is repeated, which sets `was_refused` (A6, "Transparent Retries"); if
/// it is set before, only those are repeated that were not sent.
pub(in crate::client) async fn perform_transparently<R>(
    channel: &Channel,
    was_refused: &AtomicBool,
    mut body: Body,
    make: impl Fn(Body, oneshot::Sender<Result<R, Failure>>) -> Attempt,
) -> Result<R, Failure> {
    loop {
        let (sender, receiver) = oneshot::channel();
        match perform(channel, make(body, sender), receiver).await {
            Err(Failure { unprocessed: Some(again), .. })
                if !again.was_sent || !was_refused.swap(true, Ordering::Relaxed) =>
            {
                body = again.body;
            }
            response => return response,
        }
    }
}

/// Awaits a response; `None` if the deadline is first.
async fn received<R>(
    deadline: Option<Instant>,
    receiver: oneshot::Receiver<Result<R, Failure>>,
) -> Option<Result<R, Failure>> {
    let response = match deadline {
        None => receiver.await,
        Some(deadline) => timeout_at(deadline, receiver).await.ok()?,
    };
    let lost = |_| Err(Status::unavailable("the connection ended before the answer").into());
    Some(response.unwrap_or_else(lost))
}

/// A call that has passed the interceptors: all that its attempts have in common, from the request's options or else
/// the channel's settings.
pub(super) struct PreparedCall {
    pub(super) path: PathRef,
    pub(super) dialect: ClientDialect,
    pub(super) metadata: Metadata,
    pub(super) deadline: Option<Instant>,
    pub(super) waits_for_ready: bool,
    pub(super) is_safe_to_retry: bool,
    pub(super) compression: Option<(Encoding, usize)>,
    pub(super) message_bytes_max: usize,
    /// True if codec or compression are the request's own.
    pub(super) is_own: bool,
}

impl PreparedCall {
    pub(super) fn new(
        channel: &Channel,
        config: Option<&MethodConfig>,
        path: PathRef,
        request: Request<()>,
        is_stream: bool,
    ) -> Result<Self, Status> {
        let settings = channel.settings();
        let request = channel.pass(&path.text, request)?;
        let after = |timeout: Duration| Instant::now().checked_add(timeout);
        let own_deadline = request.deadline().or_else(|| settings.timeout.and_then(after));
        let methods_deadline = config.and_then(|config| config.timeout).and_then(after);
        let options = request.options().copied().unwrap_or_default();
        Ok(Self {
            path,
            dialect: settings.dialect(is_stream, options.codec.unwrap_or(settings.codec)),
            deadline: own_deadline.into_iter().chain(methods_deadline).min(),
            waits_for_ready: request.waits_for_ready().or(config.and_then(|it| it.wait_for_ready)).unwrap_or(false),
            is_safe_to_retry: request.is_safe_to_retry(),
            compression: match options.compression {
                Compression::OfChannel => settings.compression,
                Compression::Off => None,
                Compression::On(encoding, bytes_min) => Some((encoding, bytes_min)),
            },
            message_bytes_max: options.message_bytes_max.unwrap_or(settings.message_bytes_max),
            is_own: options.codec.is_some() || !matches!(options.compression, Compression::OfChannel),
            metadata: request.into_metadata(),
        })
    }

    pub(super) fn attempt(&self, body: Body, reply_to: ReplyTo) -> Attempt {
        Attempt {
            number: next_number(),
            path: self.path.clone(),
            dialect: self.dialect,
            form: if self.is_own { Form::OwnPost } else { Form::Post },
            metadata: self.metadata.clone(),
            deadline: self.deadline,
            waits_for_ready: self.waits_for_ready,
            compression: self.compression.map(|(encoding, _)| encoding),
            message_bytes_max: self.message_bytes_max,
            body,
            reply_to,
        }
    }

    /// Path and query of a GET that carries the message; `None` if the call must be a POST.
    pub(super) fn get_target(&self, settings: &Settings, framed: &[u8]) -> Option<String> {
        let may_get = settings.protocol == Protocol::Connect && !self.path.has_side_effects;
        let bytes_max = settings.get_bytes_max.filter(|_| may_get)?;
        let compression = self.compression.map(|(encoding, _)| encoding).filter(|_| framed[0] == 1);
        let message = &framed[framing::PREFIX_BYTES..];
        let target = protocol::get_target(&self.path.text, self.dialect.codec, compression, message);
        Some(target).filter(|target| target.len() <= bytes_max)
    }
}
