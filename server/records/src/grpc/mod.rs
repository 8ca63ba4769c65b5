//! Record queries over gRPC: wire messages in, domain calls, shared slices out. No rule and no limit lives here.

use std::pin::Pin;

use bytes::Bytes;
use quire_rpc::{
    Code, Encoded, Encoding, Request, Response, Status, Stream,
    prost::Message as _,
    server::{Answer, Call, Later},
    unfold,
    wire::{put_length, put_number},
};

use crate::{
    cache::Coding,
    encode::Format,
    fault::Fault,
    grpc::wire::{
        Field, ReaderRequest, ReaderResponse, ReaderResponseString, Record, StreamRequest,
        reader::reader_service_server::ReaderService as PackagedReaderService, reader_service_server::ReaderService,
        record_stream_service_server::RecordStreamService,
    },
    query::{Query, Selection},
    records::{Records, Representation},
};

pub mod wire;

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let text = fault.to_string();
        match fault {
            Fault::NoFile => Self::failed_precondition(text),
            Fault::Invalid(_) | Fault::NoColumn { .. } => Self::invalid_argument(text),
            Fault::AnswerBytes { .. } | Fault::Busy { .. } => Self::resource_exhausted(text),
            Fault::Overloaded { retry_after } => Self::resource_exhausted(text).with_retry_pushback(Some(retry_after)),
            Fault::Late => Self::new(Code::DeadlineExceeded, text),
            Fault::Failed => Self::internal(text),
        }
    }
}

/// Maximum rows of an answer that is sent at once; others are sent as there is room.
const ROWS_NOW_MAX: usize = 64;

/// Serves records.
#[derive(Clone, Debug)]
pub struct ReaderGrpc {
    records: Records,
}

impl From<ReaderRequest> for Query {
    fn from(request: ReaderRequest) -> Self {
        Self {
            column: request.key,
            value: request.value,
            share: request.result_size,
            offset: request.offset,
            limit: (request.limit > 0).then_some(request.limit),
        }
    }
}

impl ReaderGrpc {
    /// Serves `records`.
    pub fn new(records: Records) -> Self {
        Self { records }
    }

    /// Sends small answers at once, others as there is room.
    fn answer(
        &self,
        call: Call<'_, ReaderRequest>,
        representation: &'static Representation,
    ) -> Answer<impl Later + use<>> {
        let query = match call.message() {
            Ok(request) => Query::from(request),
            Err(status) => return call.fail(&status),
        };
        let (coding, deadline) = (coding(call.request()), call.request().deadline().map(Into::into));
        match self.records.answer_now(&query, representation, ROWS_NOW_MAX) {
            Some(Ok(found)) if coding.is_none() || !self.records.packs(found.answer.len()) => {
                call.send(Encoded::from(found.answer.chunks().collect::<Vec<_>>()))
            }
            Some(Err(fault)) => call.fail(&fault.into()),
            _ => Answer::Later(later(self.records.until(deadline), query, coding, representation)),
        }
    }
}

async fn later(
    records: Records,
    query: Query,
    coding: Option<(Coding, Encoding)>,
    representation: &'static Representation,
) -> Result<Response<Encoded>, Status> {
    let found = records.answer(query, representation).await?;
    let length = found.answer.len();
    Ok(Response::new(match coding.filter(|_| records.packs(length)) {
        None => Encoded::from_chunks(length, records.joined(found).await.answer.chunks()),
        Some((coding, encoding)) => Encoded::compressed(encoding, records.packed(found, coding).await?),
    }))
}

/// The accepted coding; zstd, the cheaper one, if the caller accepts both.
fn coding(request: &Request<()>) -> Option<(Coding, Encoding)> {
    let known = [
        #[cfg(feature = "zstd")]
        (Coding::Zstd, Encoding::Zstd),
        (Coding::Gzip, Encoding::Gzip),
    ];
    known.into_iter().find(|(_, encoding)| request.accepts(*encoding))
}

impl ReaderService for ReaderGrpc {
    fn get_record(&self, call: Call<'_, ReaderRequest>) -> Answer<impl Later + use<>> {
        self.answer(call, &RECORDS)
    }

    fn get_record_string(&self, call: Call<'_, ReaderRequest>) -> Answer<impl Later + use<>> {
        self.answer(call, &LINES)
    }
}

impl PackagedReaderService for ReaderGrpc {
    fn get_record(&self, call: Call<'_, ReaderRequest>) -> Answer<impl Later + use<>> {
        self.answer(call, &RECORDS)
    }

    fn get_record_string(&self, call: Call<'_, ReaderRequest>) -> Answer<impl Later + use<>> {
        self.answer(call, &LINES)
    }
}

/// Serves records.
#[derive(Clone, Debug)]
pub struct StreamGrpc {
    records: Records,
}

impl StreamGrpc {
    /// Serves `records`.
    pub fn new(records: Records) -> Self {
        Self { records }
    }
}

impl RecordStreamService for StreamGrpc {
    type StreamRecordsStream = Pages;

    async fn stream_records(&self, request: Request<StreamRequest>) -> Result<Response<Pages>, Status> {
        let records = self.records.until(request.deadline().map(Into::into));
        let request = request.into_inner();
        let page_rows = usize::try_from(request.page_rows).unwrap_or(usize::MAX);
        let query = Query {
            column: request.key,
            value: request.value,
            share: request.result_size,
            offset: request.offset,
            limit: (request.limit > 0).then_some(request.limit),
        };
        let selection = records.select(query).await?;
        let progress = Progress {
            records,
            selection,
            next_row: 0,
            is_begun: false,
            page_rows: if page_rows == 0 { usize::MAX } else { page_rows },
        };
        Ok(Response::new(Box::pin(unfold(progress, Progress::step))))
    }
}

type Pages = Pin<Box<dyn Stream<Item = Result<Encoded, Status>> + Send>>;

/// Progress of a stream.
struct Progress {
    records: Records,
    selection: Selection,
    next_row: usize,
    is_begun: bool,
    page_rows: usize,
}

impl Progress {
    async fn step(mut self) -> Option<(Result<Encoded, Status>, Self)> {
        let rows = self.selection.rows().len();
        // Without rows there is still one message, with the counts.
        if self.next_row == rows && self.is_begun {
            return None;
        }
        self.is_begun = true;
        let start = self.next_row;
        self.next_row = self.page_end(&RECORDS);
        let page = self.records.part(&self.selection, start..self.next_row, &RECORDS).await;
        let message = |page: crate::answer::Answer| Encoded::from(page.chunks().collect::<Vec<_>>());
        Some((page.map(message).map_err(Into::into), self))
    }

    /// End of the next message's rows.
    fn page_end(&self, representation: &Representation) -> usize {
        let (table, rows) = (self.selection.table(), self.selection.rows());
        let most = self.next_row.saturating_add(self.page_rows).min(rows.len());
        let mut room = self.records.settings().limits.page_bytes;
        for (place, row) in rows[self.next_row..most].iter().enumerate() {
            let bytes = table.row_bytes(*row, representation.format);
            if bytes > room && place > 0 {
                return self.next_row + place;
            }
            room = room.saturating_sub(bytes);
        }
        most
    }
}

/// `ReaderResponse`.
static RECORDS: Representation = Representation {
    name: "ReaderResponse",
    format: Format::Protobuf,
    head_and_tail: records_head_and_tail,
    encode: encode_records,
};

/// `ReaderResponseString`.
static LINES: Representation = Representation {
    name: "ReaderResponseString",
    format: Format::Text,
    head_and_tail: lines_head_and_tail,
    encode: encode_lines,
};

/// `num_record` and `num_matching`, with the same numbers in both messages.
fn counts(rows: usize, matching: usize) -> Bytes {
    let mut out = Vec::new();
    put_number(2, rows as u64, &mut out);
    put_number(3, matching as u64, &mut out);
    out.into()
}

fn records_head_and_tail(_: usize, rows: usize, matching: usize) -> (Bytes, Bytes) {
    (Bytes::new(), counts(rows, matching))
}

fn lines_head_and_tail(bytes: usize, rows: usize, matching: usize) -> (Bytes, Bytes) {
    let mut head = Vec::new();
    if bytes > 0 {
        put_length(1, bytes, &mut head);
    }
    (head.into(), counts(rows, matching))
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn encode_records(selection: &Selection) -> Vec<u8> {
    let table = selection.table();
    let record = |row: &u32| {
        let fields = table.names().zip(table.values(*row));
        let fields = fields.map(|(key, value)| Field { key: key.to_owned(), value: value.to_owned() });
        Record { fields: fields.collect() }
    };
    let rows = selection.rows();
    let message = ReaderResponse {
        records: rows.iter().map(record).collect(),
        num_record: signed(rows.len()),
        num_matching: signed(selection.matching()),
    };
    message.encode_to_vec()
}

fn encode_lines(selection: &Selection) -> Vec<u8> {
    let rows = selection.rows();
    let message = ReaderResponseString {
        data: crate::rest::lines(selection),
        num_record: signed(rows.len()),
        num_matching: signed(selection.matching()),
    };
    message.encode_to_vec()
}
