//! Configuration as it is written: names, defaults and sources.

use std::path::PathBuf;

use anyhow::{Context, bail};
use figment::{
    Figment, Metadata, Provider, Source,
    providers::{Env, Format as _, Serialized, Toml},
    value::{Dict, Map, Value},
};
use serde::{Deserialize, Serialize};

use crate::cli::ServeArgs;

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
    pub drain_seconds: f64,
    pub threads: u64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub connections: u64,
    pub calls_in_flight: u64,
    pub purchases_queued: u64,
    pub message_bytes: u64,
    pub topic_bytes: u64,
    pub page_size: u64,
    pub quantity: u64,
    pub log_tails: u64,
    pub search_streams: u64,
    pub first_byte_seconds: f64,
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
        Self { listen: "127.0.0.1:10086".to_owned(), data: "quire-data".into(), drain_seconds: 10.0, threads: 0 }
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
            message_bytes: wide(store.message_bytes),
            topic_bytes: wide(store.topic_bytes),
            page_size: wide(store.page_size),
            quantity: store.quantity.into(),
            log_tails: wide(store.log_tails),
            search_streams: wide(store.search_streams),
            first_byte_seconds: 10.0,
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

/// One value given by a flag; a provider of its own so that the source can be named.
struct Flag {
    name: String,
    key: String,
    value: Value,
}

impl Provider for Flag {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<figment::Profile, Dict>, figment::Error> {
        Serialized::default(&self.key, &self.value).data()
    }
}

/// Settings that have no default and so cannot be found among the defaults.
const ABSENT_BY_DEFAULT: [&str; 5] = ["admin.token", "records.csv", "tls.certificate", "tls.key", "tls.client_ca"];

/// The file read when none is named.
const DEFAULT_FILE: &str = "quire.toml";

pub(super) fn figment(args: &ServeArgs) -> anyhow::Result<Figment> {
    let mut figment = Figment::from(Serialized::defaults(Raw::default()));
    if let Some(file) = &args.config {
        // Read once here, because a named file that is not there is an error and the default one is not.
        std::fs::read_to_string(file).with_context(|| format!("cannot read the configuration {}", file.display()))?;
        figment = figment.merge(Toml::file_exact(file));
    } else if std::path::Path::new(DEFAULT_FILE).exists() {
        figment = figment.merge(Toml::file_exact(DEFAULT_FILE));
    }
    // QUIRE_LEDGER_COMMIT is ledger.commit: the first underscore ends the section.
    let variables = Env::prefixed("QUIRE_").ignore(&["config"]).map(|name| name.as_str().replacen('_', ".", 1).into());
    figment = figment.merge(variables);
    // Asked instead of all that was merged: a file that cannot be read is told later, and by its own name.
    let defaults = Figment::from(Serialized::defaults(Raw::default()));
    for text in &args.set {
        let (key, value) = super::assignment(text)?;
        if defaults.find_value(key).is_err() && !ABSENT_BY_DEFAULT.contains(&key) {
            bail!("--set {text}: there is no setting {key}; --print-config shows them all");
        }
        figment = figment.merge(Flag { name: "--set".to_owned(), key: key.to_owned(), value });
    }
    let data = args.data.as_ref().map(|data| data.to_string_lossy().into_owned());
    let records_csv = args.records_csv.as_ref().map(|path| path.to_string_lossy().into_owned());
    let flags = [
        ("--listen", "server.listen", &args.listen),
        ("--tasks-listen", "tasks.listen", &args.tasks_listen),
        ("--data", "server.data", &data),
        ("--records-csv", "records.csv", &records_csv),
        ("--log-level", "log.level", &args.log_level),
        ("--log-format", "log.format", &args.log_format),
    ];
    for (name, key, value) in flags {
        if let Some(value) = value {
            figment = figment.merge(Flag { name: name.to_owned(), key: key.to_owned(), value: value.clone().into() });
        }
    }
    if args.once {
        figment = figment.merge(Flag { name: "--once".to_owned(), key: "rpcgame.once".to_owned(), value: true.into() });
    }
    Ok(figment)
}

/// Where the value of `key` came from.
pub(super) fn source(metadata: &Metadata, key: &str) -> String {
    match &metadata.source {
        Some(Source::File(path)) => path.display().to_string(),
        _ if metadata.name.starts_with("--") => metadata.name.to_string(),
        _ if metadata.name.contains("environment") => variable(key),
        _ => "default".to_owned(),
    }
}

pub(super) fn source_of(figment: &Figment, key: &str) -> String {
    figment.find_metadata(key).map_or_else(|| "default".to_owned(), |metadata| source(metadata, key))
}

fn variable(key: &str) -> String {
    format!("QUIRE_{}", key.replace('.', "_").to_uppercase())
}

pub(super) fn print(figment: &Figment) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    let defaults = Figment::from(Serialized::defaults(Raw::default()));
    for (section, _) in defaults.extract::<Dict>()? {
        lines.push(format!("[{section}]"));
        let values: Dict = figment.extract_inner(&section)?;
        for (name, value) in values {
            let key = format!("{section}.{name}");
            let shown = match &value {
                Value::Empty(..) => continue,
                // A secret does not belong into a terminal or a bug report.
                Value::String(..) if key == "admin.token" => "\"(set)\"".to_owned(),
                Value::String(_, text) => serde_json::to_string(text)?,
                Value::Bool(_, is) => is.to_string(),
                Value::Num(_, number) => {
                    // A number's kind depends on the source it came from.
                    let (unsigned, signed) = (number.to_u128(), number.to_i128());
                    let whole = unsigned.map(|whole| whole.to_string()).or(signed.map(|whole| whole.to_string()));
                    whole.or(number.to_f64().map(|real| real.to_string())).unwrap_or_default()
                }
                other => format!("{other:?}"),
            };
            lines.push(format!("{:<40} # {}", format!("{name} = {shown}"), source_of(figment, &key)));
        }
        lines.push(String::new());
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    Ok(lines.join("\n") + "\n")
}
