//! Answers every gRPC method on our own engine, with a message that is valid for any type.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use quire_rpc::server::{Answer, Call, LocalArc, Method};
use quire_rpc::{Encoded, Ignored, Limits, Response, Server, Status, Streaming};
use tokio::runtime::Handle;

/// Largest answer: the default limit of gRPC clients.
pub(super) const MESSAGE_BYTES_MAX: usize = 4 << 20;

const NAME: &str = "any method";
const STREAMS_MAX: u32 = 4096;

/// Fields with numbers that protobuf reserves: no service uses them, so every message type accepts them as unknown.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Filler {
    #[prost(bytes = "bytes", tag = "19000")]
    bytes: Bytes,
    /// Four bytes, for sizes that the first field alone skips as its length prefix grows.
    #[prost(bool, tag = "19001")]
    padding: bool,
}

impl Filler {
    /// A message of exactly this encoded size; `None` if that is 1 to 3, which no field fits, or too large.
    pub(super) fn of(encoded_bytes: usize) -> Option<Self> {
        /// Field number and length of the first field.
        const OVERHEAD_BYTES_MAX: usize = 3 + 5;
        const PADDING_BYTES: usize = 4;
        if encoded_bytes > MESSAGE_BYTES_MAX {
            return None;
        }
        let sizes = |padding: bool| {
            let left = encoded_bytes.checked_sub(if padding { PADDING_BYTES } else { 0 })?;
            (left.saturating_sub(OVERHEAD_BYTES_MAX)..=left)
                .map(|length| Self { bytes: Bytes::from(vec![0; length]), padding })
                .find(|filler| filler.encoded_len() == encoded_bytes)
        };
        sizes(false).or_else(|| sizes(true))
    }
}

struct Answerer {
    message: Bytes,
    delay: Duration,
}

impl Answerer {
    fn answer(&self) -> Encoded {
        self.message.clone().into()
    }
}

/// A server that answers every method.
pub(super) fn server(answer_bytes: usize, streams: bool, delay: Duration, workers: Vec<Handle>) -> Server {
    let message = Filler::of(answer_bytes).unwrap_or_default();
    let answerer = Arc::new(Answerer { message: message.encode_to_vec().into(), delay });
    let method = if streams {
        Method::bidi_streaming(NAME, answerer, |own, request: quire_rpc::Request<Streaming<Ignored>>| async {
            Ok(Response::new(quire_rpc::unfold((own, request.into_inner()), |state| Box::pin(next(state)))))
        })
    } else {
        Method::bytes(NAME, answerer, |own: &Arc<Answerer>, call: Call<'_, ()>| {
            if own.delay.is_zero() {
                return call.send(own.answer());
            }
            let own = Arc::clone(own);
            Answer::Later(async move {
                tokio::time::sleep(own.delay).await;
                Ok(Response::new(own.answer()))
            })
        })
    };
    let mut limits = Limits { drain_timeout: Duration::ZERO, keepalive_interval: None, ..Limits::default() };
    limits.http2.concurrent_streams_max = STREAMS_MAX;
    limits.connections_max = usize::MAX.into();
    limits.message_bytes_max = MESSAGE_BYTES_MAX;
    Server::builder().limits(limits).workers(workers).fallback(method).build()
}

type Stream = (LocalArc<Answerer>, Streaming<Ignored>);

/// The next answer; `None` once the request has ended or its error was returned.
async fn next((own, mut messages): Stream) -> Option<(Result<Encoded, Status>, Stream)> {
    let answer = match messages.message().await {
        Ok(None) => return None,
        Ok(Some(Ignored)) => Ok(own.answer()),
        Err(status) => Err(status),
    };
    if !own.delay.is_zero() {
        tokio::time::sleep(own.delay).await;
    }
    Some((answer, (own, messages)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_exactly_the_size_asked_for() {
        for size in [0, 4, 5, 130, 131, 132, 133, 16_390, 16_391, 16_392, 1 << 20, MESSAGE_BYTES_MAX] {
            let filler = Filler::of(size).unwrap_or_else(|| panic!("{size}"));
            let encoded = filler.encode_to_vec();
            assert_eq!(encoded.len(), size);
            <()>::decode(encoded.as_slice()).expect("unknown fields are skipped");
        }
        for size in [1, 2, 3, MESSAGE_BYTES_MAX + 1] {
            assert_eq!(Filler::of(size), None, "{size}");
        }
    }
}
