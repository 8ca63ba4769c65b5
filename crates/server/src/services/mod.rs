//! The services: each beside the bookstore is opened, served, counted and closed in a file of its own.

pub(crate) mod kv;
pub(crate) mod records;
pub(crate) mod rpcgame;
pub(crate) mod tasks;

use bookstore::{Bookstore, metrics::Metrics};
use prometheus_client::registry::Registry;

use self::{kv::Kv, records::Records, rpcgame::RpcGame};
use crate::{config::Config, serve::FILE_NAME};

/// The services that keep something, opened and counted; `None` for those that are off.
pub(crate) struct Opened {
    pub store: Bookstore,
    pub kv: Option<Kv>,
    pub records: Option<Records>,
    pub game: Option<RpcGame>,
}

impl Opened {
    /// Reads back what the data folder holds, and loads the file of records.
    pub(crate) async fn open(config: &Config, registry: &mut Registry) -> anyhow::Result<Self> {
        let game = match &config.rpcgame {
            Some(settings) => Some(RpcGame::open(settings).await?),
            None => None,
        };
        // A file that cannot be loaded is told before the store is made or changed.
        let records = match config.records.clone() {
            Some(settings) => Some(Records::open(settings).await?),
            None => None,
        };
        let (path, settings) = (config.data.join(FILE_NAME), config.store.clone());
        let metrics = Metrics::register(registry);
        let store = tokio::task::spawn_blocking(move || Bookstore::open(&path, settings, metrics)).await??;
        let kv = match config.kv.clone() {
            Some(settings) => Some(Kv::open(&config.data, settings).await?),
            None => None,
        };
        if let Some(kv) = &kv {
            registry.register_collector(Box::new(kv.clone()));
        }
        if let Some(records) = &records {
            registry.register_collector(Box::new(records.clone()));
        }
        if let Some(game) = &game {
            game.announce()?;
            registry.register_collector(Box::new(game.figures()));
        }
        Ok(Self { store, kv, records, game })
    }
}
