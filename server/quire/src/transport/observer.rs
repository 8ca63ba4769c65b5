//! Engine events: counted for metrics, and logged if useful to operators.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use hosting::{Client, Warnings, metrics::Refusals};
use operate::traces::{Ended, Traces, number, text};
use quire_rpc::{
    Code, TraceContext,
    server::{CallDetails, CallReport, CallSpan, Observer, Refusal},
};

use super::counts::MethodCounts;
use crate::telemetry::CallLog;

/// Prefix of the content types of gRPC and gRPC-Web.
const GRPC: &[u8] = b"application/grpc";

/// The client that a request's span counts for.
pub(super) fn client(credential: Option<&str>, peer: Option<SocketAddr>) -> Client {
    credential.map_or_else(|| Client::at(peer.map(|peer| peer.ip())), |name| Client::Credential(name.into()))
}

/// Observes one server.
pub(super) struct Watch {
    pub(super) counts: MethodCounts,
    pub(super) refusals: Refusals,
    pub(super) warnings: Warnings,
    pub(super) calls: Arc<CallLog>,
    /// Set if calls are traced.
    pub(super) traces: Option<Traces>,
}

/// A call's span, with the attributes of OpenTelemetry's semantic conventions 1.37.0, the last ones with `rpc.system`.
fn span<'a>(call: &'a CallReport<'_>, details: &CallDetails<'_>, span: &CallSpan<'a>) -> Ended<'a> {
    use Code::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unimplemented, Unknown};
    let (name, times) = (call.path.trim_start_matches('/'), &details.times);
    let (service, method) = name.rsplit_once('/').unwrap_or(("", name));
    let is_grpc = details.content_type.is_some_and(|kind| {
        kind.trim_ascii_start().get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
    });
    let mut attributes = vec![
        text("rpc.system", if is_grpc { "grpc" } else { "connect_rpc" }),
        text("rpc.method", method),
        number("quire.queue_ns", times.queued.as_nanos()),
        number("quire.handler_ns", times.handled.as_nanos()),
        number("quire.commit_ns", times.waited.as_nanos()),
        number("quire.batch_ns", times.batched.as_nanos()),
    ];
    if !service.is_empty() {
        attributes.push(text("rpc.service", service));
    }
    // Connect's texts are gRPC's names in lower case.
    let connect = (!is_grpc).then(|| call.code.name().to_ascii_lowercase());
    match &connect {
        None => attributes.push(number("rpc.grpc.status_code", call.code as i32)),
        Some(_) if call.code == Code::Ok => {}
        Some(code) => attributes.push(text("rpc.connect_rpc.error_code", code)),
    }
    if let Some(peer) = details.peer {
        attributes.extend([text("client.address", &peer.ip().to_string()), number("client.port", peer.port())]);
    }
    let server_failed = [Unknown, DeadlineExceeded, Unimplemented, Internal, Unavailable, DataLoss];
    let is_error = server_failed.contains(&call.code);
    if is_error {
        attributes.push(text("error.type", connect.as_deref().unwrap_or(call.code.name())));
    }
    Ended { name, own: span.own, parent: span.parent, elapsed: call.elapsed, is_error, attributes }
}

impl Observer for Watch {
    fn connection_opened(&self, peer: Option<SocketAddr>) {
        tracing::trace!(peer = peer.map(tracing::field::display), "a connection was opened");
    }

    fn connection_closed(&self, peer: Option<SocketAddr>, reason: &str) {
        let peer = peer.map(tracing::field::display);
        // A peer that closes without TLS's `close_notify` has closed: HTTP marks where messages end.
        let is_usual = ["closed", "closed by the peer", "drained"].contains(&reason);
        if is_usual || reason.contains("close_notify") {
            tracing::debug!(peer, reason, "a connection was closed");
        } else if reason.starts_with("cut: ") {
            tracing::warn!(peer, reason, "a connection was closed");
        } else {
            tracing::info!(peer, reason, "a connection was closed");
        }
    }

    fn wants_details(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.calls.is_on)
    }

    fn wants_traces(&self) -> bool {
        self.traces.is_some()
    }

    fn trace(&self, caller: Option<&TraceContext>) -> Option<TraceContext> {
        self.traces.as_ref()?.begin(caller)
    }

    fn polling(&self) {
        commit::measure_waits();
    }

    fn polled(&self) -> Duration {
        commit::waited()
    }

    fn call_finished(&self, call: &CallReport<'_>) {
        self.counts.ended(call.method, call.code, call.elapsed);
        let Some(details) = &call.details else { return };
        self.calls.ended(call, details);
        if let (Some(traces), Some(own)) = (&self.traces, &details.span) {
            let client = client(details.credential, details.peer);
            traces.ended(&client, own.parent.is_some(), || span(call, details, own));
        }
    }

    /// Counted but not logged: a client could flood the log.
    fn refused(&self, limit: Refusal) {
        self.refusals.count(limit.name());
    }

    fn refused_client(&self, limit: Refusal, client: &Client) {
        self.refused(limit);
        self.warnings.refused(limit.name(), client);
    }

    fn call_refused(&self, client: &Client, code: Code, reason: &str) {
        self.warnings.call_refused(code, client, reason);
    }

    fn made_room(&self, limit: Refusal, client: &Client) {
        self.warnings.made_room(limit.name(), client);
    }
}
