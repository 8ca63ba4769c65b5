//! The three services of a store that could not be opened: every call is UNAVAILABLE and says why.

use std::{pin::Pin, sync::Arc};

use ::grpc::{Request, Response, Status};
use futures_util::Stream;

use super::wire::{
    CreateRequest, CreateResponse, DeleteRequest, DeleteResponse, PutRequest, PutResponse, RetrieveRequest,
    RetrieveResponse, ScanRequest, ScanResponse, SnapshotChunk, SnapshotRequest, UpdateRequest, UpdateResponse,
    WatchEvent, WatchRequest, key_admin_service_server::KeyAdminService, key_range_service_server::KeyRangeService,
    key_value_service_server::KeyValueService,
};

/// Refuses every call.
#[derive(Clone, Debug)]
pub struct DamagedService {
    reason: Arc<str>,
}

impl DamagedService {
    /// Refuses with this reason.
    pub fn new(reason: Arc<str>) -> Self {
        Self { reason }
    }

    fn refuse<T>(&self) -> Result<Response<T>, Status> {
        Err(Status::unavailable(self.reason.to_string()))
    }
}

impl KeyValueService for DamagedService {
    async fn create(&self, _: Request<CreateRequest>) -> Result<Response<CreateResponse>, Status> {
        self.refuse()
    }

    async fn retrieve(&self, _: Request<RetrieveRequest>) -> Result<Response<RetrieveResponse>, Status> {
        self.refuse()
    }

    async fn update(&self, _: Request<UpdateRequest>) -> Result<Response<UpdateResponse>, Status> {
        self.refuse()
    }

    async fn delete(&self, _: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        self.refuse()
    }
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl KeyRangeService for DamagedService {
    type WatchStream = Messages<WatchEvent>;

    async fn put(&self, _: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        self.refuse()
    }

    async fn scan(&self, _: Request<ScanRequest>) -> Result<Response<ScanResponse>, Status> {
        self.refuse()
    }

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.refuse()
    }
}

impl KeyAdminService for DamagedService {
    type SnapshotStream = Messages<SnapshotChunk>;

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        self.refuse()
    }
}
