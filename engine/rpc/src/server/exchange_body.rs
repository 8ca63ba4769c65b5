//! The answer of an exchange: its head, then a body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use super::exchange::Exchange;
use super::sink::Outbox;
use crate::body::{Body, BoxError};

impl Exchange {
    /// The answer: the head as soon as it is known, and the rest as body.
    pub(super) async fn answer(self: Box<Self>) -> http::Response<Body> {
        let mut exchange = Some(self);
        std::future::poll_fn(|cx| Self::poll_response(&mut exchange, cx)).await.map(Body::any)
    }

    /// Polls until there is a head; returns it with the rest as body.
    fn poll_response(exchange: &mut Option<Box<Self>>, cx: &mut Context<'_>) -> Poll<http::Response<Box<Self>>> {
        let Some(this) = exchange else { return Poll::Pending };
        let head = loop {
            if this.outbox.is_ended {
                ready!(this.poll_discard(cx));
            }
            if let Some(head) = this.outbox.head.take() {
                break head;
            }
            ready!(this.poll_on(cx));
        };
        match exchange.take() {
            Some(exchange) => Poll::Ready(http::Response::from_parts(head, exchange)),
            None => Poll::Pending,
        }
    }

    /// True if the answer no longer waits for the end of its request.
    fn is_discarded(&self) -> bool {
        self.body_is_over || self.discard_bytes == 0
    }

    /// Discards the rest of the request after the answer, within the limits.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_discarded() && self.timer.as_mut().poll(cx).is_pending() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    self.discard_bytes = self.discard_bytes.saturating_sub(bytes);
                }
                None | Some(Err(_)) => self.body_is_over = true,
            }
        }
        Poll::Ready(())
    }
}

impl http_body::Body for Exchange {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some(data) = self.outbox.body.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if let Some(trailers) = self.outbox.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            if self.outbox.is_ended {
                return self.poll_discard(cx).map(|()| None);
            }
            ready!(self.poll_on(cx));
        }
    }

    fn is_end_stream(&self) -> bool {
        let Outbox { body, trailers, is_ended, .. } = &self.outbox;
        *is_ended && body.is_empty() && trailers.is_none() && self.is_discarded()
    }

    fn size_hint(&self) -> SizeHint {
        if self.outbox.is_ended && self.outbox.trailers.is_none() && self.is_discarded() {
            return SizeHint::with_exact(self.outbox.body.iter().map(|data| data.len() as u64).sum());
        }
        SizeHint::default()
    }
}
