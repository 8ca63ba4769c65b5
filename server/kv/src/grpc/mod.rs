//! The key-value service over gRPC: converts between wire messages and domain calls. No rule or limit lives here.

use std::{ops::ControlFlow, pin::Pin};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use quire_rpc::{
    Code, Encoded, Request, Response, Status,
    server::{Answer, Call, Later},
};

use crate::{
    entry::{Value, Version},
    fault::Fault,
    grpc::{
        encode::{Parts, fits_usual_message, time_to_live},
        wire::{
            CreateRequest, CreateResponse, DeleteRequest, DeleteResponse, PutRequest, PutResponse, RetrieveRequest,
            ScanRequest, UpdateRequest, UpdateResponse, WatchEvent, WatchEventKind, WatchRequest,
            key_range_service_server::KeyRangeService, key_value_service_server::KeyValueService,
        },
    },
    key_value::{KeyValue, Scan},
    watch::{Event, EventKind, Watch},
};

mod admin;
mod encode;
pub mod wire;

pub use admin::AdminService;

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        match &fault {
            // The contract requires these two without text.
            Fault::Exists => Self::already_exists(""),
            Fault::Missing => Self::not_found(""),
            Fault::Conflict(_) => Self::aborted(fault.to_string()),
            Fault::Limit { .. } => Self::resource_exhausted(fault.to_string()),
            Fault::Overloaded { retry_after } => {
                Self::resource_exhausted(fault.to_string()).with_retry_pushback(Some(*retry_after))
            }
            Fault::Late => Self::new(Code::DeadlineExceeded, fault.to_string()),
            Fault::Unavailable(_) => Self::unavailable(fault.to_string()),
            Fault::OutcomeUnknown => Self::new(Code::Unknown, fault.to_string()),
        }
    }
}

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

/// The service of a store.
#[derive(Clone, Debug)]
pub struct RangeService {
    store: KeyValue,
}

impl RangeService {
    /// Serves `store`.
    pub fn new(store: KeyValue) -> Self {
        Self { store }
    }
}

impl KeyRangeService for RangeService {
    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let buffer_bytes = request.buffer_bytes();
        let PutRequest { key, value, time_to_live_ms } = request.into_inner();
        let value = Value::received(value, buffer_bytes);
        let version = self.store.put(&key, value, time_to_live(time_to_live_ms)).await?;
        Ok(Response::new(PutResponse { version: version.0 }))
    }

    fn scan(&self, call: Call<'_, ScanRequest>) -> Answer<impl Later + use<>> {
        call.later(|request| scan_later(self.store.clone(), request.into_inner()))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchEvent, Status>> + Send>>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let watch = self.store.watch(&request.get_ref().prefix, request.client())?;
        let started = WatchEvent { kind: WatchEventKind::Started.into(), ..WatchEvent::default() };
        let started = stream::once(std::future::ready(Ok(started)));
        Ok(Response::new(Box::pin(started.chain(events(watch)))))
    }
}

async fn scan_later(store: KeyValue, request: ScanRequest) -> Result<Response<Encoded>, Status> {
    let scan = Scan {
        prefix: &request.prefix,
        start_after: request.start_after.as_deref(),
        entries: usize::try_from(request.page_size).unwrap_or(usize::MAX),
        keys_only: request.keys_only,
    };
    let mut parts = Parts::default();
    let next = store.scan(&scan, |key, entry| {
        parts.scanned(key, entry, !request.keys_only, || store.now_ms());
        ControlFlow::Continue(())
    });
    if let Some(next) = next.await? {
        parts.next(&next);
    }
    Ok(Response::new(parts.into_message()))
}

fn events(watch: Watch) -> impl Stream<Item = Result<WatchEvent, Status>> {
    stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((event.map(Into::into).map_err(Into::into), watch))
    })
}

impl From<Event> for WatchEvent {
    fn from(event: Event) -> Self {
        let kind = match event.kind {
            EventKind::Put => WatchEventKind::Put,
            EventKind::Deleted => WatchEventKind::Deleted,
            EventKind::Expired => WatchEventKind::Expired,
        };
        let value_left_out = !fits_usual_message(event.key.len(), event.value.len());
        Self {
            kind: kind.into(),
            key: Bytes::copy_from_slice(&event.key),
            value: if value_left_out { Bytes::new() } else { event.value },
            version: event.version.0,
            value_left_out,
        }
    }
}
