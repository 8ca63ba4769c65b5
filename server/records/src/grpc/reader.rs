//! `ReaderService`, without a package and in the package `reader`: the answer in one message.

use quire_rpc::{
    Encoded, Encoding, Request, Response, Status,
    server::{Answer, Call, Later},
};

use super::{
    shape::{LINES, RECORDS},
    wire::{
        ReaderRequest, reader::reader_service_server::ReaderService as PackagedReaderService,
        reader_service_server::ReaderService,
    },
};
use crate::{
    packing::Coding,
    query::Query,
    records::{Records, Shape},
};

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
    fn answer(&self, call: Call<'_, ReaderRequest>, shape: &'static Shape) -> Answer<impl Later + use<>> {
        let query = match call.message() {
            Ok(request) => Query::from(request),
            Err(status) => return call.fail(&status),
        };
        let (coding, deadline) = (coding(call.request()), call.request().deadline().map(Into::into));
        match self.records.answer_now(&query, shape, ROWS_NOW_MAX) {
            Some(Ok(found)) if coding.is_none() || !self.records.packs(found.answer.len()) => {
                call.send(Encoded::from(found.answer.chunks().collect::<Vec<_>>()))
            }
            Some(Err(fault)) => call.fail(&fault.into()),
            _ => Answer::Later(later(self.records.until(deadline), query, coding, shape)),
        }
    }
}

async fn later(
    records: Records,
    query: Query,
    coding: Option<(Coding, Encoding)>,
    shape: &'static Shape,
) -> Result<Response<Encoded>, Status> {
    let found = records.answer(query, shape).await?;
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
