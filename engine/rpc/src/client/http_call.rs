//! Calls as requests and responses of the `http` crate, carried by hyper or by a tower service.
//!
//! Implements: RFC 9110 sections 6.2 to 6.5 (fields, content, trailers); `protocol` defines their contents.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use quire_http2::{Field, Head};
use tokio::time::Instant;

use super::answer::Answer;
use super::command::{Body, Outgoing, Start};
use super::request::RequestHead;
use super::target::Target;
use crate::status::{Reach, Status};

/// The body of a request.
pub(super) enum Outbound {
    Whole(Bytes),
    Messages(Box<dyn Outgoing>),
    Over,
}

impl http_body::Body for Outbound {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match &mut *self {
            Self::Over => None,
            Self::Whole(bytes) => {
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
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Messages(_) => false,
            Self::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Messages(_) => SizeHint::default(),
            Self::Over => SizeHint::with_exact(0),
        }
    }
}

/// The request of a call. Over HTTP/1.1 the authority becomes a field.
pub(super) fn request(
    start: &mut Start,
    target: &Target,
    accepted: &str,
    version: http::Version,
) -> Result<http::Request<Outbound>, Status> {
    let late = || Status::deadline_exceeded("time was up before the call began").with_reach(Reach::Untouched);
    let left = |deadline: Instant| deadline.checked_duration_since(Instant::now()).ok_or_else(late);
    let timeout = start.deadline.map(left).transpose()?;
    let wrong = || Status::internal("the call's path, authority or metadata are malformed");
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.version = version;
    let is_http1 = version < http::Version::HTTP_2;
    let mut is_legal = true;
    let mut uri = http::uri::Parts::default();
    RequestHead::new(start, target, accepted, timeout).put(&mut |name, value, _| match name {
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
    let (from, is_bodiless) = (start.body_start(), start.is_bodiless());
    let body = match std::mem::replace(&mut start.body, Body::Message(Vec::new())) {
        _ if is_bodiless => Outbound::Over,
        Body::Message(framed) => Outbound::Whole(Bytes::from(framed).slice(from..)),
        Body::Shared(framed) => Outbound::Whole(framed.slice(from..)),
        Body::Messages(outgoing) => Outbound::Messages(outgoing),
    };
    if is_legal { Ok(http::Request::from_parts(parts, body)) } else { Err(wrong()) }
}

/// Converts a response's head to HTTP/2 form.
fn head(response: &http::response::Parts) -> Result<Arc<Head>, Status> {
    let mut fields = vec![Field::new(b":status", response.status.as_str().as_bytes())];
    for (name, value) in &response.headers {
        let belongs_to_connection =
            matches!(name.as_str(), "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade");
        if !belongs_to_connection {
            fields.push(Field::new(name.as_str().as_bytes(), value.as_bytes()));
        }
    }
    let head = Head::response(fields);
    head.map(Arc::new).map_err(|error| Status::internal(format!("the answer's head is malformed: {error}")))
}

/// Status for a body or a connection that broke off.
pub(super) fn ended(error: &(dyn Error + 'static)) -> Status {
    Status::in_error(error).unwrap_or_else(|| Status::unavailable(format!("the connection ended: {error}")))
}

/// Reads a response. `has_trailers`: carried by HTTP/2, so that trailers are meaningful. Returns whether it was read
/// completely.
pub(super) async fn receive<B>(response: http::Response<B>, mut answer: Answer, has_trailers: bool) -> bool
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if answer.is_timed {
        answer.head_at = Some(std::time::Instant::now());
    }
    let (parts, mut body) = response.into_parts();
    let begun = head(&parts).and_then(|head| {
        let is_over = has_trailers && answer.is_trailers(&head);
        if is_over { Ok(Some(head)) } else { answer.head(&head).map(|()| None) }
    });
    let mut trailers = match begun {
        Ok(Some(head)) => {
            answer.end(Some(&head));
            return true;
        }
        Ok(None) => None,
        Err(status) => {
            answer.fail(status, false);
            return false;
        }
    };
    loop {
        let data = poll_fn(|cx| {
            if answer.is_abandoned() {
                return Poll::Ready(None);
            }
            if answer.is_stalled() {
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
                Ok(data) => answer.data(&data).map(drop),
                Err(frame) => {
                    trailers = frame.into_trailers().ok().filter(|_| has_trailers).map(|fields| of_trailers(&fields));
                    Ok(())
                }
            },
            Some(Some(Err(error))) => Err(ended(&*error.into())),
        };
        if let Err(status) = taken {
            answer.fail(status, false);
            return false;
        }
    }
    match trailers.transpose() {
        Ok(trailers) => answer.end(trailers.as_ref()),
        Err(status) => answer.fail(status, false),
    }
    true
}

fn of_trailers(fields: &http::HeaderMap) -> Result<Arc<Head>, Status> {
    let fields = fields.iter().map(|(name, value)| Field::new(name.as_str().as_bytes(), value.as_bytes())).collect();
    let head = Head::trailers(fields);
    head.map(Arc::new).map_err(|error| Status::internal(format!("the answer's trailers are malformed: {error}")))
}
