//! The configuration: raw values from a file, variables and flags, in rising order, turned once into valid ones.
//! Must not know what the values are used for.

mod kv;
mod raw;
mod records;
mod rpcgame;
mod tasks;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use figment::Figment;

use self::raw::{Format, Raw};
pub(crate) use self::rpcgame::RpcGame;
pub(crate) use self::tasks::Tasks;
use crate::cli::ServeArgs;

/// What `serve` works with; every value is valid.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub listen: SocketAddr,
    pub data: PathBuf,
    /// Longest time from the wish to stop to the end of the process.
    pub drain: Duration,
    /// Threads that serve connections.
    pub threads: usize,
    pub transport: TransportLimits,
    pub store: bookstore::Settings,
    /// None if the service is off.
    pub tasks: Option<Tasks>,
    /// `None` when the key-value service is off.
    pub kv: Option<::kv::Settings>,
    /// `None` when the record queries are off.
    pub records: Option<::records::Settings>,
    pub tls: Option<Tls>,
    pub admin_token: Option<Arc<str>>,
    pub log: Log,
    /// Set when the RPC game is served.
    pub rpcgame: Option<RpcGame>,
}

/// Bounds on what callers may hold open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportLimits {
    pub connections: usize,
    pub calls_in_flight: usize,
    pub message_bytes: usize,
    /// How long a new connection may say nothing.
    pub first_byte: Duration,
}

/// PEM files.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Set when clients must show a certificate of this authority.
    pub client_ca: Option<PathBuf>,
}

/// What is logged and how it looks.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub filter: String,
    pub json: bool,
}

impl Config {
    /// Reads the file, the variables and the flags.
    pub(crate) fn load(args: &ServeArgs) -> anyhow::Result<Self> {
        let figment = raw::figment(args)?;
        let raw: Raw = figment.extract().map_err(|error| anyhow::anyhow!(explain(&figment, error)))?;
        validate(raw).map_err(|Bad { key, value, want }| {
            anyhow::anyhow!("{key} is '{value}', from {}; it must be {want}", raw::source_of(&figment, key))
        })
    }

    /// Every value and where it came from, as TOML with comments.
    pub(crate) fn explain(args: &ServeArgs) -> anyhow::Result<String> {
        Self::load(args)?;
        raw::print(&raw::figment(args)?)
    }
}

/// A value that cannot be.
struct Bad {
    key: &'static str,
    value: String,
    want: String,
}

fn bad<T>(key: &'static str, value: &impl ToString, want: impl Into<String>) -> Result<T, Bad> {
    Err(Bad { key, value: value.to_string(), want: want.into() })
}

/// A number within bounds.
fn within(key: &'static str, value: u64, least: u64, most: u64) -> Result<usize, Bad> {
    match usize::try_from(value) {
        Ok(fits) if (least..=most).contains(&value) => Ok(fits),
        _ => bad(key, &value, format!("a whole number from {least} to {most}")),
    }
}

/// A certificate and its key, or neither.
fn tls(raw: raw::Tls) -> Result<Option<Tls>, Bad> {
    match (raw.certificate, raw.key, raw.client_ca) {
        (Some(certificate), Some(key), client_ca) => Ok(Some(Tls { certificate, key, client_ca })),
        (None, None, None) => Ok(None),
        (None, ..) => bad("tls.certificate", &"not set", "set, as another key of [tls] is"),
        (_, None, _) => bad("tls.key", &"not set", "set, as tls.certificate is"),
    }
}

/// One for each core unless it is set.
fn threads(wanted: u64) -> Result<usize, Bad> {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(match within("server.threads", wanted, 0, 1024)? {
        0 => cores(),
        threads => threads,
    })
}

fn seconds(key: &'static str, value: f64) -> Result<Duration, Bad> {
    let valid = value > 0.0 && value <= 86_400.0;
    if valid { Ok(Duration::from_secs_f64(value)) } else { bad(key, &value, "seconds above 0 and up to 86400") }
}

fn validate(raw: Raw) -> Result<Config, Bad> {
    let Ok(listen) = raw.server.listen.parse() else {
        return bad("server.listen", &raw.server.listen, "an IP address and a port, as 127.0.0.1:10086 or [::1]:10086");
    };
    if raw.server.data.as_os_str().is_empty() {
        return bad("server.data", &"", "a folder");
    }
    let admin_token = raw.admin.token.filter(|token| !token.is_empty());
    if let Some(token) = admin_token.as_ref().filter(|token| token.len() < TOKEN_MIN || !token.is_ascii()) {
        return bad("admin.token", &"*".repeat(token.len()), format!("at least {TOKEN_MIN} ASCII characters"));
    }
    let (limits, ledger) = (&raw.limits, &raw.ledger);
    let store = bookstore::Settings {
        commit: raw.ledger.commit.into(),
        reads: raw.catalogue.reads.into(),
        batch_max: within("ledger.batch_max", ledger.batch_max, 1, 1 << 16)?,
        write_pool: within("ledger.pool", ledger.pool, 1, 256)?,
        read_pool: within("catalogue.pool", raw.catalogue.pool, 1, 256)?,
        limits: bookstore::Limits {
            purchases_queued: within("limits.purchases_queued", limits.purchases_queued, 1, 1 << 24)?,
            topic_bytes: within("limits.topic_bytes", limits.topic_bytes, 1, 1 << 16)?,
            page_size: within("limits.page_size", limits.page_size, 1, 100_000)?,
            quantity: u32::try_from(within("limits.quantity", limits.quantity, 1, 1 << 30)?).unwrap_or(u32::MAX),
            log_tails: within("limits.log_tails", limits.log_tails, 1, 1 << 16)?,
            search_streams: within("limits.search_streams", limits.search_streams, 1, 1 << 16)?,
            message_bytes: within("limits.message_bytes", limits.message_bytes, 1024, 1 << 30)?,
        },
        ..bookstore::Settings::default()
    };
    let transport = TransportLimits {
        connections: within("limits.connections", limits.connections, 1, 1 << 20)?,
        calls_in_flight: within("limits.calls_in_flight", limits.calls_in_flight, 1, 1 << 24)?,
        message_bytes: store.limits.message_bytes,
        first_byte: seconds("limits.first_byte_seconds", limits.first_byte_seconds)?,
    };
    let tls = tls(raw.tls)?;
    Ok(Config {
        listen,
        data: raw.server.data,
        drain: seconds("server.drain_seconds", raw.server.drain_seconds)?,
        threads: threads(raw.server.threads)?,
        transport,
        store,
        rpcgame: raw.rpcgame.validate(tls.is_some())?,
        tasks: tasks::validate(&raw.tasks)?,
        kv: kv::validate(&raw.kv)?,
        records: records::validate(&raw.records)?,
        tls,
        admin_token: admin_token.map(Into::into),
        log: Log { filter: raw.log.level, json: matches!(raw.log.format, Format::Json) },
    })
}

/// Shorter tokens are guessed.
const TOKEN_MIN: usize = 16;

/// figment's errors, one line each, with the key, the reason and the source.
fn explain(figment: &Figment, errors: figment::Error) -> String {
    let one = |error: figment::Error| {
        let key = error.path.join(".");
        let source = |key: &str| match &error.metadata {
            Some(metadata) => raw::source(metadata, key),
            None => raw::source_of(figment, key),
        };
        match &error.kind {
            figment::error::Kind::UnknownField(name, known) => {
                let name = join(&key, name);
                let (source, known) = (source(&name), known.join(", "));
                format!("there is no setting {name}, from {source}; here it must be one of {known}")
            }
            kind if key.is_empty() => format!("{}, in {}", one_line(&kind.to_string()), source(&key)),
            kind => format!("{key}: {kind}, from {}", source(&key)),
        }
    };
    errors.into_iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The TOML reader draws a picture of several lines.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains('|'));
    lines.collect::<Vec<_>>().join("; ")
}

fn join(key: &str, name: &str) -> String {
    let last = key.rsplit('.').next();
    if last == Some(name) || key.is_empty() {
        if key.is_empty() { name } else { key }.to_owned()
    } else {
        format!("{key}.{name}")
    }
}

/// Reads a `KEY=VALUE` flag.
fn assignment(text: &str) -> anyhow::Result<(&str, figment::value::Value)> {
    let Some((key, value)) = text.split_once('=').filter(|(key, _)| key.contains('.')) else {
        bail!("--set {text}: it must be SECTION.KEY=VALUE, as ledger.commit=each");
    };
    let value = value.parse().with_context(|| format!("--set {text}"))?;
    Ok((key.trim(), value))
}
