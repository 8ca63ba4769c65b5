//! `ReaderService`: an answer in one message.

use ::grpc::{
    Encoding, Request, Response, Status,
    server::{Answer, Answered},
};

use super::{
    shape::{LINES, RECORDS},
    wire::{ReaderRequest, ReaderResponse, ReaderResponseString, reader_service_server::ReaderService},
};
use crate::{
    packing::Coding,
    query::Query,
    service::{Records, Shape},
};

/// Answers with more rows are sent as there is room for them.
const ROWS_NOW_MAX: usize = 64;

/// Serves records.
#[derive(Clone, Debug)]
pub struct ReaderGrpc {
    records: Records,
}

impl From<&ReaderRequest> for Query {
    fn from(request: &ReaderRequest) -> Self {
        Self {
            column: request.key.clone(),
            value: request.value.clone(),
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

    /// Small answers, at once.
    fn now<T: prost::Message>(
        &self,
        request: &Request<ReaderRequest>,
        answer: Answer<'_, '_, T>,
        shape: &'static Shape,
    ) -> Option<Answered> {
        match self.records.answer_now(&request.get_ref().into(), shape, ROWS_NOW_MAX)? {
            Ok(found) if coding(request).is_some_and(|_| self.records.packs(found.answer.len())) => None,
            Ok(found) => Some(answer.segments(found.answer.chunks().collect())),
            Err(fault) => Some(answer.status(&fault.into())),
        }
    }

    async fn later<T: Default>(
        &self,
        request: Request<ReaderRequest>,
        shape: &'static Shape,
    ) -> Result<Response<T>, Status> {
        let found = self.records.answer(request.get_ref().into(), shape).await?;
        let length = found.answer.len();
        match coding(&request).filter(|_| self.records.packs(length)) {
            None => Ok(Response::from_chunks(length, self.records.at_hand(found).await.answer.chunks())),
            Some((coding, encoding)) => {
                let packed = self.records.packed(found, coding).await?;
                Ok(Response::from_compressed(encoding, packed))
            }
        }
    }
}

/// zstd, which costs less, where the caller reads both.
fn coding(request: &Request<ReaderRequest>) -> Option<(Coding, Encoding)> {
    let known = [(Coding::Zstd, Encoding::Zstd), (Coding::Gzip, Encoding::Gzip)];
    known.into_iter().find(|(_, encoding)| request.accepts(*encoding))
}

impl ReaderService for ReaderGrpc {
    async fn get_record(&self, request: Request<ReaderRequest>) -> Result<Response<ReaderResponse>, Status> {
        self.later(request, &RECORDS).await
    }

    fn get_record_now(
        &self,
        request: &Request<ReaderRequest>,
        answer: Answer<'_, '_, ReaderResponse>,
    ) -> Option<Answered> {
        self.now(request, answer, &RECORDS)
    }

    async fn get_record_string(
        &self,
        request: Request<ReaderRequest>,
    ) -> Result<Response<ReaderResponseString>, Status> {
        self.later(request, &LINES).await
    }

    fn get_record_string_now(
        &self,
        request: &Request<ReaderRequest>,
        answer: Answer<'_, '_, ReaderResponseString>,
    ) -> Option<Answered> {
        self.now(request, answer, &LINES)
    }
}
