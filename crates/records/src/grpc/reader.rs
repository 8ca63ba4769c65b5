//! `ReaderService`: an answer in one message.

use ::grpc::{
    Request, Response, Status,
    server::{Answer, Answered},
};

use super::{
    shape::{LINES, RECORDS},
    wire::{ReaderRequest, ReaderResponse, ReaderResponseString, reader_service_server::ReaderService},
};
use crate::{
    query::Query,
    service::{Records, Shape},
};

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

    fn now<T: prost::Message>(
        &self,
        request: &Request<ReaderRequest>,
        answer: Answer<'_, '_, T>,
        shape: &'static Shape,
    ) -> Option<Answered> {
        Some(match self.records.answer_now(&request.get_ref().into(), shape)? {
            Ok(found) => answer.segments(found.answer.chunks().collect()),
            Err(fault) => answer.status(&fault.into()),
        })
    }

    async fn later<T: Default>(
        &self,
        request: Request<ReaderRequest>,
        shape: &'static Shape,
    ) -> Result<Response<T>, Status> {
        let found = self.records.answer(request.get_ref().into(), shape).await?;
        Ok(Response::from_segments(found.answer.chunks().collect()))
    }
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
