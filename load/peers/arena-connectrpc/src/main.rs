//! The arena's contract on connectrpc, with its zero-copy views and its monomorphic dispatcher.

use std::error::Error;

use arena::{Fortunes, Options};
use connectrpc::{
    ConnectError, ConnectRpcService, Encodable, InboundStream, Limits, RequestContext, Response, ServiceRequest,
    ServiceResult, ServiceStream, server::Server,
};
use futures_util::{StreamExt, stream};
use wire::benchmark::{
    BenchmarkService, BenchmarkServiceServer, Blob, CountReply, Fortune, FortunesReply, FortunesRequest, IngestReply,
    LogBatch, Severity, StreamRequest, SumReply, SumRequest,
};

mod wire {
    connectrpc::include_generated!();
}

/// 64 MiB: more than any load here has in flight.
const WINDOW: u32 = 1 << 26;

struct Arena(Fortunes);

#[expect(refining_impl_trait, reason = "no one names the types of this service")]
impl BenchmarkService for Arena {
    async fn get_sum(&self, _: RequestContext, request: ServiceRequest<'_, SumRequest>) -> ServiceResult<SumReply> {
        Response::ok(SumReply { result: request.a.wrapping_add(request.b), ..SumReply::default() })
    }

    async fn echo(&self, _: RequestContext, request: ServiceRequest<'_, Blob>) -> ServiceResult<Blob> {
        Response::ok(request.to_owned_message())
    }

    async fn stream_sum(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, StreamRequest>,
    ) -> ServiceResult<ServiceStream<impl Encodable<SumReply> + Send + use<>>> {
        let (first, count) = (request.a.wrapping_add(request.b), request.count);
        let sum = move |at: i32| Ok(SumReply { result: first.wrapping_add(at), ..SumReply::default() });
        Response::stream_ok(stream::iter((0..count).map(sum)))
    }

    async fn count(&self, _: RequestContext, mut numbers: InboundStream<SumRequest>) -> ServiceResult<CountReply> {
        let mut reply = CountReply::default();
        while let Some(number) = numbers.next().await {
            let number = number?;
            let number = number.view();
            reply.messages += 1;
            reply.sum += i64::from(number.a) + i64::from(number.b);
        }
        Response::ok(reply)
    }

    async fn ingest(&self, _: RequestContext, request: ServiceRequest<'_, LogBatch>) -> ServiceResult<IngestReply> {
        let mut reply = IngestReply::default();
        for record in request.records.iter() {
            reply.records += 1;
            reply.errors += u64::from(record.severity == Severity::SEVERITY_ERROR);
            reply.latest_ns = reply.latest_ns.max(record.time_ns);
            let texts = [record.service, record.instance, record.message, record.trace_id, record.span_id];
            reply.text_bytes += texts.map(|text| text.len() as u64).iter().sum::<u64>();
            reply.label_bytes += record.labels.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
            reply.text_bytes += (record.source.file.len() + record.source.function.len()) as u64;
            reply.lines += u64::from(record.source.line);
        }
        Response::ok(reply)
    }

    async fn fortunes(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, FortunesRequest>,
    ) -> ServiceResult<FortunesReply> {
        let fortunes = self.0.all().await.map_err(|absent| ConnectError::unavailable(absent.to_string()))?;
        let fortunes = fortunes.into_iter().map(|(id, message)| Fortune { id, message, ..Fortune::default() });
        Response::ok(FortunesReply { fortunes: fortunes.collect(), ..FortunesReply::default() })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let options = Options::read()?;
    let fortunes = Fortunes::connect(options.redis.as_deref()).await?;
    let service = ConnectRpcService::new(BenchmarkServiceServer::new(Arena(fortunes))).with_limits(Limits::unlimited());
    let mut server = Server::bind(options.listen).await?;
    server = server
        .with_http2_initial_stream_window_size(WINDOW)
        .with_http2_initial_connection_window_size(WINDOW)
        .with_max_concurrent_streams(1 << 20);
    if let Some(tls) = options.tls {
        server = server.with_tls(tls.config()?);
    }
    server.serve_with_service(service).await
}
