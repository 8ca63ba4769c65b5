//! Configuration as it is written: names and defaults.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::units::{Bytes, Seconds};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub server: Server,
    pub limits: Limits,
    pub ledger: Ledger,
    pub catalogue: Catalogue,
    pub tasks: super::tasks::Raw,
    pub kv: super::kv::Raw,
    pub records: super::records::Raw,
    pub admin: Admin,
    pub tls: Tls,
    pub log: Log,
    pub rpcgame: super::rpcgame::Raw,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub listen: String,
    pub data: PathBuf,
    pub drain_seconds: Seconds,
    pub threads: u64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub connections: u64,
    pub calls_in_flight: u64,
    pub purchases_queued: u64,
    pub message_bytes: Bytes,
    pub topic_bytes: Bytes,
    pub page_size: u64,
    pub quantity: u64,
    pub log_tails: u64,
    pub search_streams: u64,
    pub first_byte_seconds: Seconds,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ledger {
    pub commit: Commit,
    pub batch_max: u64,
    pub pool: u64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Catalogue {
    pub reads: Reads,
    pub pool: u64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Admin {
    pub token: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub client_ca: Option<PathBuf>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    pub level: String,
    pub format: Format,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Commit {
    Group,
    Each,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reads {
    Memory,
    Database,
}

impl From<Commit> for bookstore::Commit {
    fn from(commit: Commit) -> Self {
        match commit {
            Commit::Group => Self::Group,
            Commit::Each => Self::Each,
        }
    }
}

impl From<Reads> for bookstore::Reads {
    fn from(reads: Reads) -> Self {
        match reads {
            Reads::Memory => Self::Memory,
            Reads::Database => Self::Database,
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: format!("127.0.0.1:{}", super::ports::MAIN),
            data: "quire-data".into(),
            drain_seconds: Seconds(10.0),
            threads: 0,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let store = bookstore::Limits::default();
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Self {
            connections: 4096,
            calls_in_flight: 16_384,
            purchases_queued: wide(store.purchases_queued),
            message_bytes: store.message_bytes.into(),
            topic_bytes: store.topic_bytes.into(),
            page_size: wide(store.page_size),
            quantity: store.quantity.into(),
            log_tails: wide(store.log_tails),
            search_streams: wide(store.search_streams),
            first_byte_seconds: Seconds(10.0),
        }
    }
}

impl Default for Ledger {
    fn default() -> Self {
        let store = bookstore::Settings::default();
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Self { commit: Commit::Group, batch_max: wide(store.batch_max), pool: wide(store.write_pool) }
    }
}

impl Default for Catalogue {
    fn default() -> Self {
        let pool = bookstore::Settings::default().read_pool;
        Self { reads: Reads::Memory, pool: u64::try_from(pool).unwrap_or(u64::MAX) }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: Format::default() }
    }
}
