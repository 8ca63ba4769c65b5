//! `io.grpc.KeyRangeService`: a put, and scans and watches of the keys with a prefix.

use std::{ops::ControlFlow, pin::Pin};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use quire_rpc::{
    Encoded, Request, Response, Status,
    server::{Answer, Call, Later},
};

use super::{
    encode::{Parts, fits_usual_message, time_to_live},
    wire::{
        PutRequest, PutResponse, ScanRequest, WatchEvent, WatchEventKind, WatchRequest,
        key_range_service_server::KeyRangeService,
    },
};
use crate::{
    entry::Value,
    key_value::{KeyValue, Scan},
    watch::{Event, EventKind, Watch},
};

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
