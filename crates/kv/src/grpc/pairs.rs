//! `io.grpc.KeyValueService`: the four calls on one key.

use std::cell::RefCell;

use ::grpc::{
    Request, Response, Status,
    server::{Answer, Answered},
};

use super::{
    encode::{self, Parts},
    time_to_live,
    wire::{
        CreateRequest, CreateResponse, DeleteRequest, DeleteResponse, RetrieveRequest, RetrieveResponse, UpdateRequest,
        UpdateResponse, key_value_service_server::KeyValueService,
    },
};
use crate::{
    entry::{Value, Version},
    service::KeyValue,
};

/// Serves a store.
#[derive(Clone, Debug)]
pub struct PairsService {
    store: KeyValue,
}

impl PairsService {
    /// Serves `store`.
    pub fn new(store: KeyValue) -> Self {
        Self { store }
    }

    #[inline]
    fn answer_now(&self, key: &[u8], want_details: bool, answer: Answer<'_, '_, RetrieveResponse>) -> Option<Answered> {
        let details_at_ms = want_details.then(|| self.store.now_ms());
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            let found = self.store.read_now(key, |entry| {
                if entry.value.bytes().len() < encode::APART_BYTES {
                    encode::retrieved(entry, details_at_ms, scratch);
                    return None;
                }
                let mut parts = Parts::default();
                parts.retrieved(entry, details_at_ms);
                Some(parts.into_segments())
            })?;
            Some(match found {
                Ok(None) => answer.encoded(scratch),
                Ok(Some(segments)) => answer.segments(segments),
                Err(fault) => answer.status(&fault.into()),
            })
        })
    }
}

impl KeyValueService for PairsService {
    async fn create(&self, request: Request<CreateRequest>) -> Result<Response<CreateResponse>, Status> {
        let buffer_bytes = request.buffer_bytes();
        let CreateRequest { key, value, time_to_live_ms, want_details } = request.into_inner();
        let value = Value::received(value, buffer_bytes);
        let version = self.store.create(&key, value, time_to_live(time_to_live_ms)).await?;
        Ok(Response::new(CreateResponse { version: if want_details { version.0 } else { 0 } }))
    }

    async fn retrieve(&self, request: Request<RetrieveRequest>) -> Result<Response<RetrieveResponse>, Status> {
        let RetrieveRequest { key, want_details } = request.into_inner();
        let entry = self.store.retrieve(&key).await?;
        let mut parts = Parts::default();
        parts.retrieved(&entry, want_details.then(|| self.store.now_ms()));
        Ok(Response::from_segments(parts.into_segments()))
    }

    #[inline]
    fn retrieve_raw(&self, message: &[u8], answer: Answer<'_, '_, RetrieveResponse>) -> Option<Answered> {
        self.answer_now(encode::requested_key(message)?, false, answer)
    }

    fn retrieve_now(
        &self,
        request: &Request<RetrieveRequest>,
        answer: Answer<'_, '_, RetrieveResponse>,
    ) -> Option<Answered> {
        let RetrieveRequest { key, want_details } = request.get_ref();
        self.answer_now(key, *want_details, answer)
    }

    #[inline]
    fn update_raw(&self, message: &[u8], answer: Answer<'_, '_, UpdateResponse>) -> Option<Answered> {
        let (key, value) = encode::requested_pair(message)?;
        self.store.update_now(key, value)?;
        Some(answer.encoded(&[]))
    }

    async fn update(&self, request: Request<UpdateRequest>) -> Result<Response<UpdateResponse>, Status> {
        let buffer_bytes = request.buffer_bytes();
        let UpdateRequest { key, value, expected_version, time_to_live_ms, want_details } = request.into_inner();
        let value = Value::received(value, buffer_bytes);
        let expected = expected_version.map(Version);
        let version = self.store.update(&key, value, expected, time_to_live(time_to_live_ms)).await?;
        Ok(Response::new(UpdateResponse { version: if want_details { version.0 } else { 0 } }))
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        let DeleteRequest { key, expected_version, want_details } = request.into_inner();
        let deleted = self.store.delete(&key, expected_version.map(Version)).await?;
        Ok(Response::new(DeleteResponse { deleted: deleted && want_details }))
    }
}

thread_local! {
    /// Where small answers are encoded, so that a call allocates nothing.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
