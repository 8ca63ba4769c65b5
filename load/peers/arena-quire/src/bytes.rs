//! The service with its messages as bytes: fields are read in place, and replies written into the output.

use std::{pin::Pin, str};

use self::wire::{
    Blob, Fortune, FortunesReply, FortunesRequest, LogBatch, StreamRequest, SumRequest,
    benchmark_service_server::{BenchmarkService, BenchmarkServiceServer},
};
use arena::Fortunes;
use futures_util::stream;
use quire_rpc::{
    Encode, Encoded, Request, Response, Status, Stream, Streaming,
    server::{Answer, Call, Later, Service},
    wire::{Fields, Malformed, Value, number_len, put_number},
};

#[allow(dead_code, reason = "generated")]
mod wire {
    quire_rpc::include_proto!("benchmark");
}

/// Size above which a message is sent by reference.
const COPIED_BYTES_MAX: usize = 16 * 1024;
/// Number of ERROR in the contract.
const ERROR: u64 = wire::Severity::Error as u64;

struct Arena(Fortunes);

/// The service.
pub(crate) fn service(fortunes: Fortunes) -> impl Service {
    BenchmarkServiceServer::new(Arena(fortunes))
}

fn malformed(why: Malformed) -> Status {
    Status::internal(format!("the message cannot be decoded: {why}"))
}

/// The low 32 bits, as protobuf truncates longer numbers.
fn int32(number: u64) -> i32 {
    number as u32 as i32
}

/// A message with one number as its field 1.
fn number(number: i32, out: &mut Vec<u8>) {
    put_number(1, i64::from(number) as u64, out);
}

/// The two numbers of a `SumRequest`.
fn summands(message: &[u8]) -> Result<(i32, i32), Malformed> {
    let mut summands = (0, 0);
    for field in Fields::of(message) {
        match field? {
            (1, Value::Number(a)) => summands.0 = int32(a),
            (2, Value::Number(b)) => summands.1 = int32(b),
            _ => {}
        }
    }
    Ok(summands)
}

#[derive(Default)]
struct Ingested {
    records: u64,
    text_bytes: u64,
    label_bytes: u64,
    errors: u64,
    lines: u64,
    latest_ns: u64,
}

/// Length of a text, which must be UTF-8.
fn text(bytes: &[u8]) -> Result<u64, Malformed> {
    // Most short texts are ASCII, which is checked in half the time.
    if !bytes.is_ascii() && str::from_utf8(bytes).is_err() {
        return Err(Malformed("a text is not UTF-8"));
    }
    Ok(bytes.len() as u64)
}

impl Ingested {
    fn batch(&mut self, message: &[u8]) -> Result<(), Malformed> {
        for field in Fields::of(message) {
            if let (1, Value::Bytes(record)) = field? {
                self.record(record)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, message: &[u8]) -> Result<(), Malformed> {
        self.records += 1;
        for field in Fields::of(message) {
            match field? {
                (1, Value::Number(time_ns)) => self.latest_ns = self.latest_ns.max(time_ns),
                (2 | 3 | 5 | 7 | 8, Value::Bytes(bytes)) => self.text_bytes += text(bytes)?,
                (4, Value::Number(severity)) => self.errors += u64::from(severity == ERROR),
                (6, Value::Bytes(label)) => self.label(label)?,
                (9, Value::Bytes(source)) => self.source(source)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn label(&mut self, message: &[u8]) -> Result<(), Malformed> {
        for field in Fields::of(message) {
            if let (1 | 2, Value::Bytes(bytes)) = field? {
                self.label_bytes += text(bytes)?;
            }
        }
        Ok(())
    }

    fn source(&mut self, message: &[u8]) -> Result<(), Malformed> {
        for field in Fields::of(message) {
            match field? {
                (1 | 3, Value::Bytes(bytes)) => self.text_bytes += text(bytes)?,
                (2, Value::Number(line)) => self.lines += line,
                _ => {}
            }
        }
        Ok(())
    }
}

impl BenchmarkService for Arena {
    fn get_sum(&self, mut call: Call<'_, SumRequest>) -> Answer<impl Later + use<>> {
        match summands(call.bytes()) {
            Ok((a, b)) => number(a.wrapping_add(b), call.out()),
            Err(why) => return call.fail::<NoLater>(&malformed(why)),
        }
        call.answer()
    }

    fn echo(&self, mut call: Call<'_, Blob>) -> Answer<impl Later + use<>> {
        let bytes = call.bytes();
        if bytes.len() > COPIED_BYTES_MAX {
            let bytes = call.to_bytes();
            return call.send::<NoLater>(Encoded::from(bytes));
        }
        call.out().extend_from_slice(bytes);
        call.answer()
    }

    type StreamSumStream = Sums;

    async fn stream_sum(&self, request: Request<StreamRequest>) -> Result<Response<Sums>, Status> {
        let StreamRequest { a, b, count } = request.into_inner();
        Ok(Response::new(sums(a.wrapping_add(b), count)))
    }

    async fn count(&self, request: Request<Streaming<Encoded>>) -> Result<Response<Encoded>, Status> {
        let (mut numbers, mut messages, mut sum) = (request.into_inner(), 0, 0);
        while let Some(message) = numbers.payload().await? {
            let (a, b) = summands(message.as_slice()).map_err(malformed)?;
            messages += 1;
            sum += i64::from(a) + i64::from(b);
        }
        let mut reply = Vec::new();
        put_number(1, messages, &mut reply);
        put_number(2, sum as u64, &mut reply);
        Ok(Response::new(reply.into()))
    }

    fn ingest(&self, mut call: Call<'_, LogBatch>) -> Answer<impl Later + use<>> {
        let mut ingested = Ingested::default();
        if let Err(why) = ingested.batch(call.bytes()) {
            return call.fail::<NoLater>(&malformed(why));
        }
        let Ingested { records, text_bytes, label_bytes, errors, lines, latest_ns } = ingested;
        for (field, number) in (1..).zip([records, text_bytes, label_bytes, errors, lines, latest_ns]) {
            put_number(field, number, call.out());
        }
        call.answer()
    }

    async fn fortunes(&self, _: Request<FortunesRequest>) -> Result<Response<FortunesReply>, Status> {
        let fortunes = self.0.all().await.map_err(|absent| Status::unavailable(absent.to_string()))?;
        let fortunes = fortunes.into_iter().map(|(id, message)| Fortune { id, message }).collect();
        Ok(Response::new(FortunesReply { fortunes }))
    }
}

/// Future of methods that always answer at once.
type NoLater = std::future::Ready<Result<Response<Encoded>, Status>>;

type Sums = Pin<Box<dyn Stream<Item = Result<Sum, Status>> + Send>>;

/// A hand-written `SumReply`.
struct Sum(i32);

impl Encode for Sum {
    fn encoded_len(&self) -> usize {
        number_len(i64::from(self.0) as u64)
    }

    fn encode(self, out: &mut Vec<u8>) {
        number(self.0, out);
    }
}

fn sums(first: i32, count: i32) -> Sums {
    Box::pin(stream::iter((0..count).map(move |at| Ok(Sum(first.wrapping_add(at))))))
}
