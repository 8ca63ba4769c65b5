//! The bookstore as a service of a server. Has no rules.

use std::time::Duration;

use hosting::{Error, Host, Open, Service, Site, access::Scope, metrics};
use quire_rpc::server::Builder;
use tokio::{sync::watch, task::spawn_blocking};

use crate::{
    bookstore::Bookstore,
    cosign,
    grpc::{
        AdminService, ShopService,
        wire::{
            admin_server::{self, AdminServer},
            book_store_server::BookStoreServer,
        },
    },
    metrics::{Metrics, write},
    rest,
    settings::Settings,
};

/// The store's file in the data folder.
pub const FILE_NAME: &str = "bookstore.db";

/// The open service.
#[derive(Clone, Debug)]
pub struct BookstoreService {
    store: Bookstore,
    settings: Settings,
}

impl BookstoreService {
    /// The store.
    pub fn store(&self) -> &Bookstore {
        &self.store
    }

    /// The settings that it was opened with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Open for BookstoreService {
    type Settings = Settings;
    const SCOPE: Scope = Scope::Shop;
    const OPERATORS: &'static [&'static str] = &[admin_server::NAME];
    const ENABLED: Option<&'static str> = Some("bookstore.enabled");

    /// Opens the store's file, creating it with the sample catalogue if there is none.
    async fn open(mut settings: Settings, host: &mut Host<'_>) -> Result<Self, Error> {
        settings.limits.message_bytes = host.message_bytes_max;
        let path = host.data.join(FILE_NAME);
        let counters = Metrics::register(host.metrics, host.refusals.clone());
        let opened_with = settings.clone();
        let store = spawn_blocking(move || Bookstore::open(&path, opened_with, counters)).await??;
        host.handles.offer(store.clone());
        let shown = store.clone();
        metrics::collect(host.metrics, move |page| write(page, &shown.levels()));
        cosign::start(&store, host.metrics);
        tracing::info!(books = store.books(), "the bookstore is open");
        Ok(Self { store, settings })
    }
}

impl Service for BookstoreService {
    fn grpc(&self, builder: Builder) -> Builder {
        builder
            .add_service(BookStoreServer::new(ShopService::new(self.store.clone())))
            .add_service(AdminServer::new(AdminService::new(self.store.clone())))
    }

    fn http(&self) -> Site {
        rest::site(self.store.clone())
    }

    fn healthy(&self) -> watch::Receiver<bool> {
        self.store.healthy()
    }

    fn is_essential(&self) -> bool {
        true
    }

    fn trouble(&self) -> Option<String> {
        self.store.trouble()
    }

    fn drain(&self) {
        self.store.end_tails();
    }

    fn close(&self, timeout: Duration) -> bool {
        self.store.close(timeout)
    }
}
