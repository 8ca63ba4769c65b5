//! The record queries as a hosted service: opened, served and reloaded. Must not hold a rule.

use hosting::{Error, Host, Open, Pending, Service, Site, access::Scope, metrics};
use quire_rpc::server::Builder;
use tokio::{sync::watch, task::spawn_blocking};

use crate::{
    grpc::{
        ReaderGrpc, StreamGrpc,
        wire::{
            reader::reader_service_server::ReaderServiceServer as PackagedReaderServiceServer,
            reader_service_server::ReaderServiceServer, record_stream_service_server::RecordStreamServiceServer,
        },
    },
    metrics::write,
    records::Records,
    rest,
    settings::Settings,
};

/// The service, open.
#[derive(Clone, Debug)]
pub struct RecordsService {
    records: Records,
}

impl Open for RecordsService {
    type Settings = Settings;
    const SCOPE: Scope = Scope::Records;
    const ENABLED: Option<&'static str> = Some("records.enabled");

    /// Loads the file.
    async fn open(settings: Settings, host: &mut Host<'_>) -> Result<Self, Error> {
        let records = spawn_blocking(move || Records::open(settings)).await??;
        host.handles.offer(records.clone());
        let shown = records.clone();
        metrics::collect(host.metrics, move |page| write(page, &shown.levels()));
        Ok(Self { records })
    }
}

impl Service for RecordsService {
    fn grpc(&self, builder: Builder) -> Builder {
        let reader = ReaderGrpc::new(self.records.clone());
        builder
            .add_service(ReaderServiceServer::new(reader.clone()))
            .add_service(PackagedReaderServiceServer::new(reader))
            .add_service(RecordStreamServiceServer::new(StreamGrpc::new(self.records.clone())))
    }

    fn http(&self) -> Site {
        rest::site(self.records.clone())
    }

    /// Unhealthy without a file: every query is refused.
    fn healthy(&self) -> watch::Receiver<bool> {
        watch::channel(self.records.is_loaded()).1
    }

    /// Reloads the file; the previous one is served meanwhile, and if that fails.
    fn reload(&self) -> Pending<'_, ()> {
        let records = self.records.clone();
        Box::pin(async move {
            if !records.is_loaded() {
                return tracing::debug!("there are no records to load again, as records.csv is not set");
            }
            match spawn_blocking(move || records.reload()).await {
                Ok(Ok(())) => tracing::info!("records are loaded again"),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "records were not loaded again; the last ones are still served");
                }
                Err(error) => tracing::error!(%error, "loading records again ended in a fault of the server"),
            }
        })
    }
}
