//! The configuration: raw values from a file, variables and flags, in rising order, turned once into valid ones.
//! Must not know what the values are used for.

mod kv;
mod raw;
mod records;
mod report;
mod rpcgame;
mod sources;
mod tasks;
mod units;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use figment::Figment;

pub(crate) use self::rpcgame::RpcGame;
use self::{
    raw::{Format, Raw},
    sources::{DEFAULT, source_of},
    units::{Bytes, Seconds},
};
pub(crate) use self::{sources::Flag, tasks::Tasks, units::time};
use crate::{
    address,
    cli::{ConfigArgs, ServeArgs},
    telemetry,
};

/// Where the services listen if nothing else is said.
pub(crate) mod ports {
    pub(crate) const MAIN: u16 = 10086;
    pub(crate) const TASKS: u16 = 8080;
    pub(crate) const GAME: u16 = 29381;
    pub(crate) const LEAN: u16 = 29382;
}

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

/// An address of a service beside the main port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub address: SocketAddr,
    /// The file, a variable or a flag names it; otherwise it is the default.
    pub is_named: bool,
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
    /// What `serve` works with, and what was given that has no effect.
    pub(crate) fn of_server(args: &ServeArgs) -> anyhow::Result<(Self, Vec<String>)> {
        let Loaded { config, warnings, .. } = load(&args.config, args.settings())?;
        Ok((config, warnings))
    }

    /// What a command that uses the data folder works with: the same settings that `serve` would have.
    pub(crate) fn of_tool(args: &ConfigArgs) -> anyhow::Result<Self> {
        let Loaded { config, warnings, .. } = load(args, Vec::new())?;
        for warning in warnings {
            eprintln!("quire: {warning}");
        }
        Ok(config)
    }

    /// Every value and where it came from, as TOML with comments, and what was given that has no effect.
    pub(crate) fn explain(args: &ServeArgs) -> anyhow::Result<(String, Vec<String>)> {
        let Loaded { figment, warnings, .. } = load(&args.config, args.settings())?;
        Ok((report::print(&figment, &figment.extract()?)?, warnings))
    }
}

struct Loaded {
    figment: Figment,
    config: Config,
    warnings: Vec<String>,
}

/// Reads the file, the variables and the flags.
fn load(args: &ConfigArgs, flags: Vec<Flag>) -> anyhow::Result<Loaded> {
    let sources::Sources { figment, warnings } = sources::read(args, flags)?;
    let raw: Raw = figment.extract().map_err(|error| anyhow::anyhow!(report::unreadable(&figment, error)))?;
    let refused = |bad: Bad| anyhow::anyhow!(report::refused(&figment, bad.key, &bad.value, &bad.want));
    let config = validate(raw, &|key| source_of(&figment, key) != DEFAULT).map_err(refused)?;
    ports_differ(&config, |key| source_of(&figment, key)).map_err(refused)?;
    Ok(Loaded { figment, config, warnings })
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

/// A size within bounds.
fn bytes_within(key: &'static str, size: Bytes, least: u64, most: u64) -> Result<usize, Bad> {
    match usize::try_from(size.0) {
        Ok(fits) if (least..=most).contains(&size.0) => Ok(fits),
        _ => bad(key, &size, format!("a size from {} to {}", Bytes(least), Bytes(most))),
    }
}

/// A certificate and its key, or neither.
fn tls(raw: raw::Tls) -> Result<Option<Tls>, Bad> {
    let missing = |key, given| bad(key, &"", format!("the path of a PEM file, because {given} is set"));
    // An empty path is none: a variable can be set to nothing and not unset.
    let path = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
    match (path(raw.certificate), path(raw.key), path(raw.client_ca)) {
        (Some(certificate), Some(key), client_ca) => Ok(Some(Tls { certificate, key, client_ca })),
        (None, None, None) => Ok(None),
        (Some(_), None, _) => missing("tls.key", "tls.certificate"),
        (None, Some(_), _) => missing("tls.certificate", "tls.key"),
        (None, None, Some(_)) => missing("tls.certificate", "tls.client_ca"),
    }
}

/// A place to listen.
fn listening(key: &'static str, text: &str, usual_port: u16) -> Result<SocketAddr, Bad> {
    address::listening(text, usual_port).or_else(|wrong| bad(key, &text, wrong.want))
}

/// One for each core unless it is set.
fn threads(wanted: u64) -> Result<usize, Bad> {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(match within("server.threads", wanted, 0, 1024)? {
        0 => cores(),
        threads => threads,
    })
}

fn seconds(key: &'static str, value: Seconds) -> Result<Duration, Bad> {
    units::positive(value).map_or_else(|| bad(key, &value.0, units::TIME), Ok)
}

/// No two services listen on one port. The later of a pair may be refused its port when it is a default: then it was
/// not asked for.
fn ports_differ(config: &Config, source: impl Fn(&str) -> String) -> Result<(), Bad> {
    let game = config.rpcgame.as_ref();
    let places = [
        ("server.listen", Some(Port { address: config.listen, is_named: true })),
        ("tasks.listen", config.tasks.as_ref().map(|tasks| tasks.listen)),
        ("rpcgame.listen", game.and_then(|game| game.listen)),
        ("rpcgame.lean_listen", game.and_then(|game| game.lean_listen)),
    ];
    for (place, (later, there)) in places.iter().enumerate() {
        for (earlier, here) in &places[..place] {
            let (Some(here), Some(there)) = (here, there) else { continue };
            let (here, is_named, there) = (here.address, there.is_named, there.address);
            let meet = here.ip() == there.ip() || here.ip().is_unspecified() || there.ip().is_unspecified();
            if here.port() == there.port() && here.port() != 0 && meet && is_named {
                let want = format!("a port of its own: {earlier} is '{here}', from {}", source(earlier));
                return bad(later, &there, want);
            }
        }
    }
    Ok(())
}

/// Whether the operator names the value of a key.
type IsNamed<'a> = &'a dyn Fn(&str) -> bool;

fn validate(raw: Raw, is_named: IsNamed<'_>) -> Result<Config, Bad> {
    let listen = listening("server.listen", &raw.server.listen, ports::MAIN)?;
    if raw.server.data.as_os_str().is_empty() {
        return bad("server.data", &"", "a folder");
    }
    let admin_token = raw.admin.token.filter(|token| !token.is_empty());
    if admin_token.as_ref().is_some_and(|token| token.len() < TOKEN_MIN || !token.is_ascii()) {
        return bad("admin.token", &"(hidden)", format!("at least {TOKEN_MIN} ASCII characters"));
    }
    if let Err(want) = telemetry::check(&raw.log.level) {
        return bad("log.level", &raw.log.level, want);
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
            topic_bytes: bytes_within("limits.topic_bytes", limits.topic_bytes, 1, 1 << 16)?,
            page_size: within("limits.page_size", limits.page_size, 1, 100_000)?,
            quantity: u32::try_from(within("limits.quantity", limits.quantity, 1, 1 << 30)?).unwrap_or(u32::MAX),
            log_tails: within("limits.log_tails", limits.log_tails, 1, 1 << 16)?,
            search_streams: within("limits.search_streams", limits.search_streams, 1, 1 << 16)?,
            message_bytes: bytes_within("limits.message_bytes", limits.message_bytes, 1024, 1 << 30)?,
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
        rpcgame: raw.rpcgame.validate(tls.is_some(), is_named)?,
        tasks: tasks::validate(&raw.tasks, is_named)?,
        kv: kv::validate(&raw.kv)?,
        records: records::validate(&raw.records)?,
        tls,
        admin_token: admin_token.map(Into::into),
        log: Log { filter: raw.log.level, json: matches!(raw.log.format, Format::Json) },
    })
}

/// Shorter tokens are guessed.
const TOKEN_MIN: usize = 16;
