//! Attempts as requests and responses of the `http` crate, carried by hyper or by a channel's tower layers.
//!
//! Implements: RFC 9110 sections 6.2 to 6.5 (fields, content, trailers); `protocol` defines their contents.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use quire_http2::{Field, Head, is_hop_by_hop};
#[cfg(feature = "tower")]
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::attempt::{Attempt, Body, Outgoing, RequestHead};
use super::response::ResponseReader;
#[cfg(feature = "tower")]
use crate::body::{Body as HttpBody, HttpService, ResponseFuture};
use crate::client::channel::target::Target;
use crate::client::settings::Settings;
use crate::failure::{TransportError, TransportFailure};
use crate::message::compression;
use crate::message::inbox::Inbox;
use crate::status::Status;

/// Settings for all attempts of a carrier.
pub(crate) struct CarrierSettings {
    version: http::Version,
    /// Encodings accepted in responses.
    accepted: String,
    unread_bytes_max: usize,
}

impl CarrierSettings {
    pub(crate) fn new(version: http::Version, settings: &Settings) -> Self {
        let accepted = compression::accepted(&settings.accepts);
        Self { version, accepted, unread_bytes_max: settings.unread_bytes_max }
    }
}

/// The body of a request.
pub(crate) enum RequestBody {
    Complete(Bytes),
    Messages(Box<dyn Outgoing>),
    Over,
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match &mut *self {
            Self::Over => None,
            Self::Complete(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Over;
                Some(Ok(Frame::data(bytes)))
            }
            Self::Messages(outgoing) => {
                let mut framed = Vec::new();
                let more = ready!(outgoing.poll_next(cx, &mut framed));
                if !matches!(more, Ok(true)) {
                    *self = Self::Over;
                }
                more.map(|more| more.then(|| Frame::data(framed.into()))).transpose()
            }
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Complete(bytes) => bytes.is_empty(),
            Self::Messages(_) => false,
            Self::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Complete(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Messages(_) => SizeHint::default(),
            Self::Over => SizeHint::with_exact(0),
        }
    }
}

/// Carries an attempt: makes its request, sends it, and reads the response. Returns true if the carrier is ready for
/// another request: nothing was sent, or the response was read completely.
pub(crate) async fn carry<B, F>(
    mut attempt: Attempt,
    target: &Target,
    settings: &CarrierSettings,
    send: impl FnOnce(http::Request<RequestBody>) -> F,
) -> bool
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    F: Future<Output = Result<http::Response<B>, Status>>,
{
    let request = match request(&mut attempt, target, settings) {
        Ok(request) => request,
        Err(status) => {
            attempt.reply_to.fail(status);
            return true;
        }
    };
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let inbox = || Inbox::new(waker, settings.unread_bytes_max);
    let Attempt { dialect, reply_to, message_bytes_max, .. } = attempt;
    let reader = ResponseReader::new(dialect, reply_to, message_bytes_max, inbox);
    match send(request).await {
        Ok(response) => receive(response, reader, settings.version >= http::Version::HTTP_2).await,
        Err(status) => {
            reader.fail(status);
            false
        }
    }
}

/// The request of an attempt. Over HTTP/1.1 the authority becomes a field.
fn request(
    attempt: &mut Attempt,
    target: &Target,
    settings: &CarrierSettings,
) -> Result<http::Request<RequestBody>, Status> {
    let timeout = attempt.timeout(Instant::now())?;
    let wrong = || Status::internal("the call's path, authority or metadata are malformed");
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.version = settings.version;
    let is_http1 = settings.version < http::Version::HTTP_2;
    let mut is_legal = true;
    let mut uri = http::uri::Parts::default();
    RequestHead::new(attempt, target, &settings.accepted, timeout).put(&mut |name, value, _| match name {
        b":scheme" if is_http1 => {}
        b":scheme" => uri.scheme = value.try_into().ok(),
        b":authority" if !is_http1 => uri.authority = value.try_into().ok(),
        b":method" => parts.method = http::Method::from_bytes(value).unwrap_or_default(),
        b":path" => uri.path_and_query = value.try_into().ok(),
        _ => {
            let name = if name == b":authority" { b"host" } else { name };
            match (http::HeaderName::from_bytes(name), http::HeaderValue::from_bytes(value)) {
                (Ok(name), Ok(value)) => drop(parts.headers.append(name, value)),
                _ => is_legal = false,
            }
        }
    });
    match http::Uri::from_parts(uri) {
        Ok(uri) => parts.uri = uri,
        Err(_) => is_legal = false,
    }
    let (from, is_bodiless) = (attempt.body_start(), attempt.is_bodiless());
    let body = match std::mem::replace(&mut attempt.body, Body::Message(Vec::new())) {
        _ if is_bodiless => RequestBody::Over,
        Body::Message(framed) => RequestBody::Complete(Bytes::from(framed).slice(from..)),
        Body::Shared(framed) => RequestBody::Complete(framed.slice(from..)),
        Body::Messages(outgoing) => RequestBody::Messages(outgoing),
    };
    if is_legal { Ok(http::Request::from_parts(parts, body)) } else { Err(wrong()) }
}

/// Converts a response's head to HTTP/2 form.
fn head(response: &http::response::Parts) -> Result<Arc<Head>, Status> {
    let mut fields = vec![Field::new(b":status", response.status.as_str().as_bytes())];
    for (name, value) in &response.headers {
        if !is_hop_by_hop(name.as_str().as_bytes()) {
            fields.push(Field::new(name.as_str().as_bytes(), value.as_bytes()));
        }
    }
    let head = Head::response(fields);
    head.map(Arc::new).map_err(|error| Status::internal(format!("the answer's head is malformed: {error}")))
}

/// Status for a body or a connection that broke off.
pub(crate) fn connection_ended(error: Box<dyn Error + Send + Sync>) -> Status {
    Status::in_error(&*error)
        .unwrap_or_else(|| Status::connection_ended(TransportError::of(TransportFailure::Closed, error)))
}

/// Reads a response. `has_trailers`: carried by HTTP/2, so that trailers are meaningful. Returns whether it was read
/// completely.
async fn receive<B>(response: http::Response<B>, mut reader: ResponseReader, has_trailers: bool) -> bool
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if reader.is_timed {
        reader.head_at = Some(std::time::Instant::now());
    }
    let (parts, mut body) = response.into_parts();
    let begun = head(&parts).and_then(|head| {
        let is_over = has_trailers && reader.is_trailers(&head);
        if is_over { Ok(Some(head)) } else { reader.head(&head).map(|()| None) }
    });
    let mut trailers = match begun {
        Ok(Some(head)) => {
            reader.end(Some(&head));
            return true;
        }
        Ok(None) => None,
        Err(status) => {
            reader.fail(status);
            return false;
        }
    };
    loop {
        let data = poll_fn(|cx| {
            if reader.is_abandoned() {
                return Poll::Ready(None);
            }
            if reader.is_stalled() {
                return Poll::Pending;
            }
            Pin::new(&mut body).poll_frame(cx).map(Some)
        })
        .await;
        let taken = match data {
            // The caller has dropped the stream.
            None => return false,
            Some(None) => break,
            Some(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => reader.data(&data).map(drop),
                Err(frame) => {
                    trailers = frame.into_trailers().ok().filter(|_| has_trailers).map(|fields| of_trailers(&fields));
                    Ok(())
                }
            },
            Some(Some(Err(error))) => Err(connection_ended(error.into())),
        };
        if let Err(status) = taken {
            reader.fail(status);
            return false;
        }
    }
    match trailers.transpose() {
        Ok(trailers) => reader.end(trailers.as_ref()),
        Err(status) => reader.fail(status),
    }
    true
}

fn of_trailers(fields: &http::HeaderMap) -> Result<Arc<Head>, Status> {
    let fields = fields.iter().map(|(name, value)| Field::new(name.as_str().as_bytes(), value.as_bytes())).collect();
    let head = Head::trailers(fields);
    head.map(Arc::new).map_err(|error| Status::internal(format!("the answer's trailers are malformed: {error}")))
}

/// The tower layers that a channel's calls pass through.
#[cfg(feature = "tower")]
pub(crate) struct Layers {
    service: Box<dyn HttpService>,
    target: Arc<Target>,
    settings: CarrierSettings,
}

#[cfg(feature = "tower")]
impl Layers {
    pub(crate) fn new(service: Box<dyn HttpService>, target: Arc<Target>, settings: &Settings) -> Self {
        Self { service, target, settings: CarrierSettings::new(http::Version::HTTP_2, settings) }
    }

    /// Sends any request through the layers.
    pub(crate) fn call(&self, request: http::Request<HttpBody>) -> ResponseFuture {
        self.service.call(request)
    }

    /// Carries an attempt through the layers, in a task, since a stream's response arrives while the caller reads it.
    pub(crate) fn spawn(self: &Arc<Self>, attempt: Attempt) -> LayerTask {
        let layers = Arc::clone(self);
        let handle = tokio::spawn(async move {
            let waits_for_ready = attempt.waits_for_ready;
            let send = |request: http::Request<RequestBody>| {
                let mut request = request.map(HttpBody::new);
                if waits_for_ready {
                    request.extensions_mut().insert(WaitsForReady);
                }
                let answering = layers.service.call(request);
                async { answering.await.map_err(|error| Status::of_layer(&*error)) }
            };
            carry(attempt, &layers.target, &layers.settings, send).await;
        });
        LayerTask { handle, armed: true }
    }
}

/// Request extension: the call waits for a connection while the server is unreachable.
#[cfg(feature = "tower")]
#[derive(Clone, Copy)]
pub(crate) struct WaitsForReady;

/// An attempt's task within the layers; aborted on drop if armed.
#[cfg(feature = "tower")]
pub(crate) struct LayerTask {
    handle: JoinHandle<()>,
    pub(crate) armed: bool,
}

#[cfg(feature = "tower")]
impl Drop for LayerTask {
    fn drop(&mut self) {
        if self.armed {
            self.handle.abort();
        }
    }
}
