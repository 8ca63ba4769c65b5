//! `io.grpc.KeyAdminService`: calls for operators, if the server permits them.

use std::{num::NonZeroU64, pin::Pin};

use futures_util::{Stream, stream};
use quire_rpc::{Request, Response, Status};

use super::wire::{SnapshotChunk, SnapshotEntry, SnapshotRequest, key_admin_service_server::KeyAdminService};
use crate::{
    entry::{Entry, Key, Value, Version},
    key_value::KeyValue,
    snapshot::{Restore, RestoreError, Snapshot},
};

/// The service for a store's operators.
#[derive(Clone, Debug)]
pub struct AdminService {
    store: KeyValue,
}

impl AdminService {
    /// Serves `store`; the server authorizes callers.
    pub fn new(store: KeyValue) -> Self {
        Self { store }
    }
}

impl KeyAdminService for AdminService {
    type SnapshotStream = Pin<Box<dyn Stream<Item = Result<SnapshotChunk, Status>> + Send>>;

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        Ok(Response::new(Box::pin(chunks(self.store.snapshot()?))))
    }
}

/// Stream of chunks, each read when the client has room.
fn chunks(snapshot: Snapshot) -> impl Stream<Item = Result<SnapshotChunk, Status>> {
    stream::unfold(Some(snapshot), |snapshot| async move {
        let mut snapshot = snapshot?;
        let read = tokio::task::spawn_blocking(move || chunk(&mut snapshot).map(|chunk| (chunk, snapshot))).await;
        let read = read.unwrap_or_else(|error| Err(Status::internal(error.to_string())));
        Some(match read {
            Ok((chunk, snapshot)) => {
                let ends = chunk.last_version.is_some();
                (Ok(chunk), (!ends).then_some(snapshot))
            }
            Err(status) => (Err(status), None),
        })
    })
}

fn chunk(snapshot: &mut Snapshot) -> Result<SnapshotChunk, Status> {
    Ok(match snapshot.next_page()? {
        Some(page) => SnapshotChunk { entries: page.into_iter().map(Into::into).collect(), last_version: None },
        None => SnapshotChunk { entries: Vec::new(), last_version: Some(snapshot.last_version()?.0) },
    })
}

impl From<(Key, Entry)> for SnapshotEntry {
    fn from((key, entry): (Key, Entry)) -> Self {
        Self {
            key: key.to_vec().into(),
            value: entry.value.bytes().clone(),
            version: entry.version.0,
            expires_at_ms: entry.expires_at_ms.map_or(0, NonZeroU64::get),
        }
    }
}

impl From<SnapshotEntry> for (Key, Entry) {
    fn from(entry: SnapshotEntry) -> Self {
        let SnapshotEntry { key, value, version, expires_at_ms } = entry;
        let (version, expires_at_ms) = (Version(version), NonZeroU64::new(expires_at_ms));
        (Key::from(&key[..]), Entry { value: Value::received(value, 0), version, expires_at_ms })
    }
}

impl Restore {
    /// Adds a chunk of a snapshot's stream.
    pub fn chunk(&mut self, chunk: SnapshotChunk) -> Result<(), RestoreError> {
        let page: Vec<(Key, Entry)> = chunk.entries.into_iter().map(Into::into).collect();
        self.put(&page)?;
        if let Some(version) = chunk.last_version {
            self.end(Version(version));
        }
        Ok(())
    }
}
