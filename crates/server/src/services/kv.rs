//! The key-value service on this server. Must not hold a rule; those are in the crate `kv`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use ::kv::{
    Clock, KeyValue, OpenError, Settings,
    grpc::{AdminService, PairsService, RangeService, wire},
};
use bookstore::grpc::Access;
use grpc::{
    Status,
    reflection::Reflection,
    server::{Builder, RefusedService},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use tokio::{
    sync::watch::{self, Receiver},
    task::JoinHandle,
};
use wire::{
    key_admin_service_server::{self, KeyAdminServiceServer},
    key_range_service_server::{self, KeyRangeServiceServer},
    key_value_service_server::{self, KeyValueServiceServer},
};

/// Its folder in the data folder; there only if writes are to last.
pub(crate) const FOLDER_NAME: &str = "kv";

/// In the data folder: where the server is that keeps its entries there. Others cannot open them meanwhile.
pub(crate) const ADDRESS_FILE: &str = "kv.address";

/// The services' names, for health.
pub(crate) const NAMES: [&str; 3] = ["io.grpc.KeyValueService", "io.grpc.KeyRangeService", "io.grpc.KeyAdminService"];

/// The service, opened; or the reason why it could not be.
#[derive(Clone, Debug)]
pub(crate) struct Kv {
    store: Result<KeyValue, Arc<str>>,
    /// What watches [`Kv::sound`] if there is no store.
    never_sound: Arc<watch::Sender<bool>>,
}

impl Kv {
    /// Reads back what the data folder holds. If that cannot be read, the other services still start; but two servers
    /// never share a folder.
    pub(crate) async fn open(data: &Path, settings: Settings) -> anyhow::Result<Self> {
        let folder = data.join(FOLDER_NAME);
        let opening = move || KeyValue::open(&folder, settings, Clock::Wall);
        let store = match tokio::task::spawn_blocking(opening).await {
            Ok(Ok(store)) => Ok(store),
            Ok(Err(error @ OpenError::InUse(_))) => return Err(error.into()),
            Ok(Err(error)) => Err(error.to_string().into()),
            // What reads the files gave up over them.
            Err(panicked) => Err(format!("the key-value store cannot be opened: {panicked}").into()),
        };
        if let Err(reason) = &store {
            tracing::error!(%reason, "the key-value service is unavailable; the other services start without it");
        }
        Ok(Self { store, never_sound: Arc::new(watch::Sender::new(false)) })
    }

    /// Tells other programs of this machine where the server is that has the entries on disk open.
    pub(crate) fn announce(data: &Path, address: SocketAddr, tls: bool) {
        let ip = match address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let scheme = if tls { "https" } else { "http" };
        let url = format!("{scheme}://{}\n", SocketAddr::new(ip, address.port()));
        if let Err(error) = std::fs::write(data.join(ADDRESS_FILE), url) {
            tracing::warn!(%error, "cannot write {ADDRESS_FILE}: `quire backup` needs --server");
        }
    }

    /// Removes what expires, until the task is ended.
    pub(crate) fn sweep(&self) -> JoinHandle<()> {
        let store = self.store.clone();
        tokio::spawn(async move {
            if let Ok(store) = store {
                store.keep_sweeping().await;
            }
        })
    }

    /// `access` says who may act as operator.
    pub(crate) fn serve_on(&self, builder: Builder, access: Access) -> Builder {
        match &self.store {
            Ok(store) => {
                let admit = Arc::new(move |metadata: &grpc::Metadata| Ok(access.check(metadata)?));
                builder
                    .add_service(KeyValueServiceServer::new(PairsService::new(store.clone())))
                    .add_service(KeyRangeServiceServer::new(RangeService::new(store.clone())))
                    .add_service(KeyAdminServiceServer::new(AdminService::new(store.clone(), admit)))
            }
            Err(reason) => {
                let status = Status::unavailable(reason.to_string());
                let refused = |name, methods| RefusedService { name, methods, status: status.clone() };
                builder
                    .add_service(refused(key_value_service_server::NAME, &key_value_service_server::METHODS))
                    .add_service(refused(key_range_service_server::NAME, &key_range_service_server::METHODS))
                    .add_service(refused(key_admin_service_server::NAME, &key_admin_service_server::METHODS))
            }
        }
    }

    pub(crate) fn describe(reflection: Reflection) -> anyhow::Result<Reflection> {
        Ok(reflection.descriptors(wire::DESCRIPTORS)?)
    }

    /// Whether writes are taken.
    pub(crate) fn sound(&self) -> Receiver<bool> {
        self.store.as_ref().map_or_else(|_| self.never_sound.subscribe(), KeyValue::sound)
    }

    /// Why writes are not taken; `None` if they are.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &self.store {
            Err(reason) => Some(reason.to_string()),
            Ok(store) if *store.sound().borrow() => None,
            Ok(_) => Some("the key-value journal failed and is being read back; writes of keys are refused".to_owned()),
        }
    }

    /// Ends the calls that would never end by themselves.
    pub(crate) fn end_watches(&self) {
        if let Ok(store) = &self.store {
            store.end_watches();
        }
    }

    /// Blocks; returns whether all that was taken is on disk.
    pub(crate) fn close(&self, patience: Duration) -> bool {
        self.store.as_ref().map_or(true, |store| store.close(patience))
    }
}

impl Collector for Kv {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let levels = self.store.as_ref().map(KeyValue::levels).unwrap_or_default();
        let gauges = [
            ("kv_entries", "Entries of the key-value service", count(levels.entries)),
            ("kv_bytes", "Memory of those entries, as kv.total_bytes counts it", count(levels.bytes)),
            ("kv_watchers", "Watches of the key-value service", count(levels.watchers)),
            ("kv_writes_queued", "Writes that wait for the key-value journal", count(levels.writes_queued)),
            (
                "kv_sound",
                "1 while key-value writes are taken, 0 while a failed journal is read back or the store is damaged",
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
