//! The arena's contract on pajamax, as far as supported: a thread per connection, a message per call, a frame per
//! message. Its generator turns streaming methods into unary ones, so those are refused here.

use std::error::Error;

use arena::Options;
use pajamax::{
    Config, Response,
    status::{Code, Status},
};
use wire::{
    BenchmarkService, BenchmarkServiceServer, Blob, CountReply, FortunesReply, FortunesRequest, IngestReply, LogBatch,
    StreamRequest, SumReply, SumRequest,
};

mod wire {
    #![allow(non_camel_case_types, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/benchmark.rs"));
}

struct Arena;

fn unable<T>() -> Response<T> {
    Err(Status { code: Code::Unimplemented, message: "pajamax cannot do this".to_owned() })
}

impl BenchmarkService for Arena {
    fn get_sum(&self, request: SumRequest) -> Response<SumReply> {
        Ok(SumReply { result: request.a.wrapping_add(request.b) })
    }

    fn echo(&self, request: Blob) -> Response<Blob> {
        Ok(request)
    }

    fn stream_sum(&self, _: StreamRequest) -> Response<SumReply> {
        unable()
    }

    fn count(&self, _: SumRequest) -> Response<CountReply> {
        unable()
    }

    fn ingest(&self, _: LogBatch) -> Response<IngestReply> {
        unable()
    }

    fn fortunes(&self, _: FortunesRequest) -> Response<FortunesReply> {
        unable()
    }
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let options = Options::read()?;
    let config = Config::new().max_concurrent_connections(4096);
    config.add_service(BenchmarkServiceServer::new(Arena)).serve(options.listen)?;
    Ok(())
}
