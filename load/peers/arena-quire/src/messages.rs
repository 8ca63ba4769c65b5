//! The service with the contract's message types.

use std::pin::Pin;

use arena::Fortunes;
use futures_util::stream;
use quire_rpc::{Request, Response, Status, Stream, Streaming, server::Service};
use wire::{
    Blob, CountReply, Fortune, FortunesReply, FortunesRequest, IngestReply, LogBatch, Severity, StreamRequest,
    SumReply, SumRequest,
    benchmark_service_server::{BenchmarkService, BenchmarkServiceServer},
};

#[allow(dead_code, reason = "generated")]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

struct Arena(Fortunes);

/// The service.
pub(crate) fn service(fortunes: Fortunes) -> impl Service {
    BenchmarkServiceServer::new(Arena(fortunes))
}

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

type Sums = Pin<Box<dyn Stream<Item = Result<SumReply, Status>> + Send>>;

fn sums(first: i32, count: i32) -> Sums {
    let sum = move |at| Ok(SumReply { result: first.wrapping_add(at) });
    Box::pin(stream::iter((0..count).map(sum)))
}
