//! The key-value service on this server. Must not hold a rule; those are in the crate `kv`.

use std::{path::Path, sync::Arc, time::Duration};

use ::kv::{
    Clock, KeyValue, Settings,
    grpc::{AdminService, PairsService, RangeService, wire},
};
use bookstore::grpc::Access;
use grpc::{reflection::Reflection, server::Builder};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use tokio::{sync::watch::Receiver, task::JoinHandle};
use wire::{
    key_admin_service_server::KeyAdminServiceServer, key_range_service_server::KeyRangeServiceServer,
    key_value_service_server::KeyValueServiceServer,
};

/// Its folder in the data folder; there only if writes are to last.
const FOLDER_NAME: &str = "kv";

/// The services' names, for health.
pub(crate) const NAMES: [&str; 3] = ["io.grpc.KeyValueService", "io.grpc.KeyRangeService", "io.grpc.KeyAdminService"];

/// The service, opened.
#[derive(Clone, Debug)]
pub(crate) struct Kv {
    store: KeyValue,
}

impl Kv {
    /// Reads back what the data folder holds.
    pub(crate) async fn open(data: &Path, settings: Settings) -> anyhow::Result<Self> {
        let folder = data.join(FOLDER_NAME);
        let opening = move || KeyValue::open(&folder, settings, Clock::Wall);
        Ok(Self { store: tokio::task::spawn_blocking(opening).await?? })
    }

    /// Removes what expires, until the task is ended.
    pub(crate) fn sweep(&self) -> JoinHandle<()> {
        let store = self.store.clone();
        tokio::spawn(async move { store.keep_sweeping().await })
    }

    /// `access` says who may act as operator.
    pub(crate) fn serve_on(&self, builder: Builder, access: Access) -> Builder {
        let admit = Arc::new(move |metadata: &grpc::Metadata| Ok(access.check(metadata)?));
        builder
            .add_service(KeyValueServiceServer::new(PairsService::new(self.store.clone())))
            .add_service(KeyRangeServiceServer::new(RangeService::new(self.store.clone())))
            .add_service(KeyAdminServiceServer::new(AdminService::new(self.store.clone(), admit)))
    }

    pub(crate) fn describe(reflection: Reflection) -> anyhow::Result<Reflection> {
        Ok(reflection.descriptors(wire::DESCRIPTORS)?)
    }

    /// Whether writes are taken.
    pub(crate) fn sound(&self) -> Receiver<bool> {
        self.store.sound()
    }

    /// Ends the calls that would never end by themselves.
    pub(crate) fn end_watches(&self) {
        self.store.end_watches();
    }

    /// Blocks; returns whether all that was taken is on disk.
    pub(crate) fn close(&self, patience: Duration) -> bool {
        self.store.close(patience)
    }
}

impl Collector for Kv {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let levels = self.store.levels();
        let gauges = [
            ("kv_entries", "Entries of the key-value service", count(levels.entries)),
            ("kv_bytes", "Memory of those entries, as kv.total_bytes counts it", count(levels.bytes)),
            ("kv_watchers", "Watches of the key-value service", count(levels.watchers)),
            ("kv_writes_queued", "Writes that wait for the key-value journal", count(levels.writes_queued)),
            (
                "kv_sound",
                "1 while key-value writes are taken, 0 while a failed journal is read back",
                levels.sound.into(),
            ),
        ];
        for (name, help, level) in gauges {
            let gauge = ConstGauge::new(level);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let failures = ConstCounter::new(levels.failures);
        let help = "Times that the key-value journal failed and was read back";
        failures.encode(encoder.encode_descriptor("kv_failures", help, None, failures.metric_type())?)
    }
}
