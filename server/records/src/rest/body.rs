//! An answer as a response body of known length, sent piece by piece.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::answer::{Answer, Chunks};

/// The body.
pub(super) struct Pieces {
    chunks: Chunks,
    left: u64,
}

impl Pieces {
    pub(super) fn new(answer: Answer) -> Self {
        Self { left: answer.len() as u64, chunks: answer.chunks() }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.chunks.next();
        if let Some(piece) = &piece {
            self.left -= piece.len() as u64;
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
