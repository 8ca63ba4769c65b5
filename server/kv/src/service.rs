//! The key-value store as a service of a server. Has no rules.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use hosting::{Error, Host, Open, Service, Serving, access::Scope, metrics};
use quire_rpc::{
    Status,
    server::{Builder, RefusedService},
};
use tokio::{sync::watch, task::spawn_blocking};

use crate::{
    entry::Clock,
    grpc::{
        AdminService, PairsService, RangeService,
        wire::{
            DESCRIPTORS,
            key_admin_service_server::{self, KeyAdminServiceServer},
            key_range_service_server::{self, KeyRangeServiceServer},
            key_value_service_server::{self, KeyValueServiceServer},
        },
    },
    key_value::KeyValue,
    metrics::write,
    settings::{Durability, Settings},
};

/// The store's folder in the data folder; exists only with [`Durability::Log`].
pub const FOLDER_NAME: &str = "kv";

/// File in the data folder with the address of the server that has the store open. Other programs cannot open it
/// meanwhile.
pub const ADDRESS_FILE: &str = "kv.address";

/// The open service, or the error that its store could not be opened with.
#[derive(Debug)]
pub struct KvService {
    store: Result<KeyValue, Arc<str>>,
    /// File and content to write once the server listens.
    announcement: Option<(PathBuf, String)>,
    /// Never turns true: health without a store.
    unhealthy: watch::Sender<bool>,
}

impl KvService {
    /// The store if its entries are on disk; an error if it could not be opened.
    pub fn store_on_disk(&self) -> Result<Option<&KeyValue>, &str> {
        let store = self.store.as_ref().map_err(|reason| &**reason)?;
        Ok(self.announcement.is_some().then_some(store))
    }
}

impl Open for KvService {
    type Settings = Settings;
    const SCOPE: Scope = Scope::Kv;
    const OPERATORS: &'static [&'static str] = &[key_admin_service_server::NAME];
    const ENABLED: Option<&'static str> = Some("kv.enabled");

    /// Loads the data folder. If that fails, the other services still start; a second server on the same store does
    /// not.
    async fn open(settings: Settings, host: &mut Host<'_>) -> Result<Self, Error> {
        let folder = host.data.join(FOLDER_NAME);
        let is_on_disk = settings.durability == Durability::Log;
        let store = match spawn_blocking(move || KeyValue::open(&folder, settings, Clock::Wall)).await {
            Ok(Ok(store)) => Ok(store),
            Ok(Err(error)) if error.is_in_use() || cfg!(not(feature = "journal")) => return Err(error.into()),
            Ok(Err(error)) => Err(error.to_string().into()),
            // Reading the files panicked.
            Err(panic) => Err(Arc::from(format!("the key-value store cannot be opened: {panic}"))),
        };
        if let Err(reason) = &store {
            tracing::error!(%reason, "the key-value service is unavailable; the other services start without it");
        }
        if let Ok(store) = &store {
            host.handles.offer(store.clone());
            store.histograms().register(host.metrics);
        }
        let shown = store.clone().ok();
        metrics::collect(host.metrics, move |page| {
            write(page, &shown.as_ref().map(KeyValue::levels).unwrap_or_default())
        });
        let announcement = is_on_disk.then(|| (host.data.join(ADDRESS_FILE), url(host.address, host.is_tls)));
        Ok(Self { store, announcement, unhealthy: watch::Sender::new(false) })
    }
}

impl Service for KvService {
    fn grpc(&self, builder: Builder) -> Builder {
        match &self.store {
            Ok(store) => builder
                .add_service(KeyValueServiceServer::new(PairsService::new(store.clone())))
                .add_service(KeyRangeServiceServer::new(RangeService::new(store.clone())))
                .add_service(KeyAdminServiceServer::new(AdminService::new(store.clone())))
                .admit_when_full(format!("/{}/Delete", key_value_service_server::NAME)),
            Err(reason) => {
                let status = Status::unavailable(reason.to_string());
                let refused =
                    |name, methods| RefusedService { name, methods, descriptors: DESCRIPTORS, status: status.clone() };
                builder
                    .add_service(refused(key_value_service_server::NAME, &key_value_service_server::METHODS))
                    .add_service(refused(key_range_service_server::NAME, &key_range_service_server::METHODS))
                    .add_service(refused(key_admin_service_server::NAME, &key_admin_service_server::METHODS))
            }
        }
    }

    fn start(&mut self, serving: &mut Serving) -> Result<(), Error> {
        if let Some((file, url)) = &self.announcement
            && let Err(error) = std::fs::write(file, url)
        {
            tracing::warn!(%error, "cannot write {ADDRESS_FILE}: `quire backup` needs --server");
        }
        if let Ok(store) = self.store.clone() {
            serving.run_until_stopped(async move { store.keep_sweeping().await });
        }
        Ok(())
    }

    fn healthy(&self) -> watch::Receiver<bool> {
        self.store.as_ref().map_or_else(|_| self.unhealthy.subscribe(), KeyValue::healthy)
    }

    fn trouble(&self) -> Option<String> {
        match &self.store {
            Err(reason) => Some(reason.to_string()),
            Ok(store) => store.trouble(),
        }
    }

    fn drain(&self) {
        if let Ok(store) = &self.store {
            store.end_watches();
        }
    }

    fn close(&self, timeout: Duration) -> bool {
        self.store.as_ref().map_or(true, |store| store.close(timeout))
    }
}

/// The server's URL for programs on this machine.
fn url(address: SocketAddr, is_tls: bool) -> String {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let scheme = if is_tls { "https" } else { "http" };
    format!("{scheme}://{}\n", SocketAddr::new(ip, address.port()))
}
