//! `io.grpc.KeyValueService`: the four single-key calls.

use quire_rpc::{
    Encoded, Request, Response, Status,
    server::{Answer, Call, Later},
};

use super::{
    encode::{self, Parts, time_to_live},
    wire::{
        CreateRequest, CreateResponse, DeleteRequest, DeleteResponse, RetrieveRequest, UpdateRequest, UpdateResponse,
        key_value_service_server::KeyValueService,
    },
};
use crate::{
    entry::{Value, Version},
    key_value::KeyValue,
};

/// The service of a store.
#[derive(Clone, Debug)]
pub struct PairsService {
    store: KeyValue,
}

impl PairsService {
    /// Serves `store`.
    pub fn new(store: KeyValue) -> Self {
        Self { store }
    }
}

impl KeyValueService for PairsService {
    async fn create(&self, request: Request<CreateRequest>) -> Result<Response<CreateResponse>, Status> {
        let buffer_bytes = request.buffer_bytes();
        let store = self.store.until(request.deadline().map(Into::into));
        let CreateRequest { key, value, time_to_live_ms, want_details } = request.into_inner();
        let value = Value::received(value, buffer_bytes);
        let version = store.create(&key, value, time_to_live(time_to_live_ms)).await?;
        Ok(Response::new(CreateResponse { version: if want_details { version.0 } else { 0 } }))
    }

    #[inline]
    fn retrieve(&self, mut call: Call<'_, RetrieveRequest>) -> Answer<impl Later + use<>> {
        let found = encode::requested_key(call.bytes()).and_then(|(key, want_details)| {
            let details_at_ms = want_details.then(|| self.store.now_ms());
            self.store.read_now(key, |entry| {
                if entry.value.bytes().len() < encode::APART_BYTES {
                    encode::retrieved(entry, details_at_ms, call.out());
                    return None;
                }
                let mut parts = Parts::default();
                parts.retrieved(entry, details_at_ms);
                Some(parts.into_message())
            })
        });
        match found {
            Some(Ok(None)) => call.answer(),
            Some(Ok(Some(message))) => call.send(message),
            Some(Err(fault)) => call.fail(&fault.into()),
            None => call.later(|request| retrieve_later(self.store.clone(), request.into_inner())),
        }
    }

    #[inline]
    fn update(&self, call: Call<'_, UpdateRequest>) -> Answer<impl Later + use<>> {
        let updated = encode::requested_pair(call.bytes()).and_then(|(key, value)| self.store.update_now(key, value));
        match updated {
            // Without the version the answer is empty.
            Some(_) => call.answer(),
            None => call.later(|request| update_later(self.store.until(request.deadline().map(Into::into)), request)),
        }
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        let store = self.store.until(request.deadline().map(Into::into));
        let DeleteRequest { key, expected_version, want_details } = request.into_inner();
        let deleted = store.delete(&key, expected_version.map(Version)).await?;
        Ok(Response::new(DeleteResponse { deleted: deleted && want_details }))
    }
}

async fn retrieve_later(store: KeyValue, request: RetrieveRequest) -> Result<Response<Encoded>, Status> {
    let RetrieveRequest { key, want_details } = request;
    let entry = store.retrieve(&key).await?;
    let mut parts = Parts::default();
    parts.retrieved(&entry, want_details.then(|| store.now_ms()));
    Ok(Response::new(parts.into_message()))
}

async fn update_later(store: KeyValue, request: Request<UpdateRequest>) -> Result<Response<Encoded>, Status> {
    let buffer_bytes = request.buffer_bytes();
    let UpdateRequest { key, value, expected_version, time_to_live_ms, want_details } = request.into_inner();
    let value = Value::received(value, buffer_bytes);
    let expected = expected_version.map(Version);
    let version = store.update(&key, value, expected, time_to_live(time_to_live_ms)).await?;
    Ok(Response::new(Encoded::of(UpdateResponse { version: if want_details { version.0 } else { 0 } })))
}
