//! The arena's contract on tonic. Settings as for `tonic-bookstore`: one thread, windows too large for flow control to
//! matter, TCP_NODELAY, no interceptors.

use std::{error::Error, pin::Pin};

use arena::{Fortunes, Options};
use futures_util::stream;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Identity, Server, ServerTlsConfig},
};
use wire::{
    Blob, CountReply, Fortune, FortunesReply, FortunesRequest, IngestReply, LogBatch, Severity, StreamRequest,
    SumReply, SumRequest,
    benchmark_service_server::{BenchmarkService, BenchmarkServiceServer},
};

mod wire {
    tonic::include_proto!("benchmark");
}

/// 64 MiB: more than any load here has in flight.
const WINDOW: u32 = 1 << 26;
const MESSAGE_BYTES_MAX: usize = 1 << 23;

struct Arena(Fortunes);

#[tonic::async_trait]
impl BenchmarkService for Arena {
    async fn get_sum(&self, request: Request<SumRequest>) -> Result<Response<SumReply>, Status> {
        let SumRequest { a, b } = request.into_inner();
        Ok(Response::new(SumReply { result: a.wrapping_add(b) }))
    }

    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type StreamSumStream = Sums;

    async fn stream_sum(&self, request: Request<StreamRequest>) -> Result<Response<Sums>, Status> {
        let StreamRequest { a, b, count } = request.into_inner();
        Ok(Response::new(sums(a.wrapping_add(b), count)))
    }

    async fn count(&self, request: Request<Streaming<SumRequest>>) -> Result<Response<CountReply>, Status> {
        let (mut numbers, mut reply) = (request.into_inner(), CountReply::default());
        while let Some(SumRequest { a, b }) = numbers.message().await? {
            reply.messages += 1;
            reply.sum += i64::from(a) + i64::from(b);
        }
        Ok(Response::new(reply))
    }

    async fn ingest(&self, request: Request<LogBatch>) -> Result<Response<IngestReply>, Status> {
        let mut reply = IngestReply::default();
        for record in request.into_inner().records {
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
        Ok(Response::new(reply))
    }

    async fn fortunes(&self, _: Request<FortunesRequest>) -> Result<Response<FortunesReply>, Status> {
        let fortunes = self.0.all().await.map_err(|absent| Status::unavailable(absent.to_string()))?;
        let fortunes = fortunes.into_iter().map(|(id, message)| Fortune { id, message }).collect();
        Ok(Response::new(FortunesReply { fortunes }))
    }
}

type Sums = Pin<Box<dyn stream::Stream<Item = Result<SumReply, Status>> + Send>>;

fn sums(first: i32, count: i32) -> Sums {
    let sum = move |at| Ok(SumReply { result: first.wrapping_add(at) });
    Box::pin(stream::iter((0..count).map(sum)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let options = Options::read()?;
    let fortunes = Fortunes::connect(options.redis.as_deref()).await?;
    let mut server = Server::builder()
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .max_concurrent_streams(1 << 20)
        .tcp_nodelay(true);
    if let Some(tls) = options.tls {
        server = server.tls_config(ServerTlsConfig::new().identity(Identity::from_pem(tls.certificate, tls.key)))?;
    }
    let service = BenchmarkServiceServer::new(Arena(fortunes)).max_decoding_message_size(MESSAGE_BYTES_MAX);
    server.add_service(service).serve(options.listen).await?;
    Ok(())
}
