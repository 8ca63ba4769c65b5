//! The unary part of the arena's contract, hand-written on hyper: the cost of gRPC without a gRPC library.

use std::{convert::Infallible, error::Error, future::Future, pin::Pin, task};

use arena::Options;
use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Request, Response,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use wire::{Blob, IngestReply, LogBatch, Severity, SumReply, SumRequest};

#[allow(dead_code, reason = "generated")]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/benchmark.rs"));
}

/// 64 MiB: more than any load here has in flight.
const WINDOW: u32 = 1 << 26;
const PREFIX_BYTES: usize = 5;
const UNIMPLEMENTED: &str = "12";
const INTERNAL: &str = "13";

/// An optional message, and the status in trailers.
struct Answer {
    message: Option<Bytes>,
    status: Option<&'static str>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
    ) -> task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = self.message.take().map(Frame::data).or_else(|| {
            let mut trailers = HeaderMap::with_capacity(1);
            trailers.insert("grpc-status", HeaderValue::from_static(self.status.take()?));
            Some(Frame::trailers(trailers))
        });
        task::Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.status.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

fn encode(message: &impl Message) -> Result<Bytes, &'static str> {
    let length = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + length);
    out.put_u8(0);
    out.put_u32(u32::try_from(length).map_err(|_| INTERNAL)?);
    message.encode(&mut out).map_err(|_| INTERNAL)?;
    Ok(out.freeze())
}

fn decode<T: Message + Default>(body: Bytes) -> Result<T, &'static str> {
    if body.len() < PREFIX_BYTES {
        return Err(INTERNAL);
    }
    T::decode(body.slice(PREFIX_BYTES..)).map_err(|_| INTERNAL)
}

fn ingest(batch: LogBatch) -> IngestReply {
    let mut reply = IngestReply::default();
    for record in batch.records {
        reply.records += 1;
        reply.errors += u64::from(record.severity() == Severity::Error);
        reply.latest_ns = reply.latest_ns.max(record.time_ns);
        let texts = [&record.service, &record.instance, &record.message, &record.trace_id, &record.span_id];
        reply.text_bytes += texts.map(|text| text.len() as u64).iter().sum::<u64>();
        reply.label_bytes += record.labels.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
        if let Some(source) = &record.source {
            reply.text_bytes += (source.file.len() + source.function.len()) as u64;
            reply.lines += u64::from(source.line);
        }
    }
    reply
}

fn call(path: &str, body: Bytes) -> Result<Bytes, &'static str> {
    match path {
        "/benchmark.BenchmarkService/GetSum" => {
            let SumRequest { a, b } = decode(body)?;
            encode(&SumReply { result: a.wrapping_add(b) })
        }
        "/benchmark.BenchmarkService/Echo" => encode(&decode::<Blob>(body)?),
        "/benchmark.BenchmarkService/Ingest" => encode(&ingest(decode(body)?)),
        _ => Err(UNIMPLEMENTED),
    }
}

async fn serve(request: Request<Incoming>) -> Result<Response<Answer>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let answer = match call(head.uri.path(), body) {
        Ok(message) => Answer { message: Some(message), status: Some("0") },
        Err(status) => Answer { message: None, status: Some(status) },
    };
    let mut response = Response::new(answer);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// Serves a connection until it ends.
fn connection(stream: tokio::net::TcpStream) -> impl Future<Output = ()> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_connection_window_size(WINDOW).initial_stream_window_size(WINDOW).max_concurrent_streams(1 << 20);
    let connection = builder.serve_connection(TokioIo::new(stream), service_fn(serve));
    async move {
        if let Err(error) = connection.await {
            eprintln!("arena-hyper: a connection failed: {error}");
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind(Options::read()?.listen).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(stream));
    }
}
