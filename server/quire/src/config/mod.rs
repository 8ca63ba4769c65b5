//! The configuration: values from a file, variables and flags, in rising order, read once into valid settings.

mod file;
mod hosts;
mod origins;
mod sources;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use hosting::{Choice, Layers, Open, Reader, Refused, Wanted, access::Scope};
use quire_rpc::{Encoding, Limits, server::Memory};

pub(crate) use self::hosts::Hosts;
use self::sources::Sources;
use crate::{
    cli::{ConfigArgs, Flag, ServeArgs},
    memory,
    services::SERVICES,
    telemetry::{self, Log},
};

/// The default main port.
pub(crate) const PORT: u16 = 10086;

/// Validated settings of `serve`.
pub(crate) struct Config {
    pub listen: SocketAddr,
    pub data: PathBuf,
    /// Longest time from the stop signal to the end of the process.
    pub drain: Duration,
    /// Threads that serve connections.
    pub threads: usize,
    /// Limits on callers.
    pub limits: Limits,
    /// The connection limits, as configured.
    pub connections: Wanted,
    /// Those of them that differ from the defaults.
    pub connections_set: Wanted,
    pub tls: Option<Tls>,
    /// Host names accepted on loopback.
    pub hosts: Vec<String>,
    /// Origins whose web pages may call; `*` is any.
    pub cors_origins: Vec<String>,
    /// Compression of answers for clients that accept it.
    pub compression: Option<Encoding>,
    /// The file of credentials.
    pub tokens: Option<PathBuf>,
    /// Scopes that need no credential.
    pub open: Vec<Scope>,
    pub admin_token: Option<Arc<str>>,
    pub log: Log,
    /// The enabled services.
    pub services: Vec<Box<dyn Choice>>,
}

/// PEM files.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authority of the certificates that clients must present; `None` if they need none.
    pub client_ca: Option<PathBuf>,
}

impl Config {
    /// Settings of `serve`, and a warning for each given value without effect.
    pub(crate) fn of_server(args: &ServeArgs) -> anyhow::Result<(Self, Vec<String>)> {
        let Sources { layers, warnings } = load(&args.config, args.settings())?;
        let mut reader = Reader::new(&layers);
        let config = read_all(&mut reader)?;
        Ok((config, [warnings, reader.warnings()].concat()))
    }

    /// Settings of a command that uses the data folder: the same as of `serve`.
    pub(crate) fn of_tool(args: &ConfigArgs) -> anyhow::Result<Self> {
        let Sources { layers, warnings } = load(args, Vec::new())?;
        let config = read_all(&mut Reader::new(&layers))?;
        // What does not hold as it is given concerns a server, not a tool.
        for warning in warnings {
            eprintln!("quire: {warning}");
        }
        Ok(config)
    }

    /// Every value with its source, as TOML with comments, and a warning for each given value without effect.
    pub(crate) fn explain(args: &ServeArgs) -> anyhow::Result<(String, Vec<String>)> {
        let Sources { layers, warnings } = load(&args.config, args.settings())?;
        let mut reader = Reader::new(&layers);
        read_all(&mut reader)?;
        let warnings = [warnings, reader.warnings()].concat();
        Ok((print(&reader), warnings))
    }

    /// The settings of the service `S`; the defaults if it is off.
    pub(crate) fn settings_of<S: Open<Settings: Clone + Default>>(&self) -> S::Settings {
        self.services.iter().find_map(|service| service.settings::<S>()).cloned().unwrap_or_default()
    }
}

fn load(args: &ConfigArgs, flags: Vec<Flag>) -> anyhow::Result<Sources> {
    let nothing = Layers::new();
    let mut defaults = Reader::new(&nothing);
    read_all(&mut defaults)?;
    let known: Vec<&str> = defaults.values().keys().copied().collect();
    sources::read(args, flags, &known)
}

/// Shorter tokens can be guessed.
const TOKEN_MIN: usize = 16;

fn read_all(from: &mut Reader<'_>) -> Result<Config, Refused> {
    let listen = from.port("server.listen", PORT)?.address;
    let data = PathBuf::from(from.text("server.data", "quire-data")?);
    if data.as_os_str().is_empty() {
        return Err(from.refuse("server.data", "", "a folder"));
    }
    let drain = from.seconds("server.drain_seconds", Duration::from_secs(10))?;
    let threads = from.cores("server.threads")?;
    let hosts = hosts::read(from)?;
    let cors_origins = origins::read(from)?;
    let encodings = [
        ("off", None),
        ("gzip", Some(Encoding::Gzip)),
        #[cfg(feature = "zstd")]
        ("zstd", Some(Encoding::Zstd)),
    ];
    let compression = from.choice("server.compression", &encodings)?;
    let limits = Limits {
        connections_max: from.connections("limits.connections", 4096)?,
        calls_max: from.whole("limits.calls_in_flight", 16_384, 1..=1 << 24)?,
        health_watches_max: from.whole("limits.health_watches", 1024, 1..=1 << 24)?,
        reflection_streams_max: from.whole("limits.reflection_streams", 128, 1..=1 << 24)?,
        message_bytes_max: from.bytes("limits.message_bytes", 4 << 20, 1024..=1 << 30)?,
        handshake_timeout: from.seconds("limits.first_byte_seconds", Duration::from_secs(10))?,
        memory: account(from)?,
        ..Limits::default()
    };
    let tls = tls(from)?;
    from.set_tls(tls.is_some());
    let admin_token = from.secret("admin.token")?;
    let is_sent_whole = |token: &str| token.trim() == token && token.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if admin_token.as_ref().is_some_and(|token| token.len() < TOKEN_MIN || !is_sent_whole(token)) {
        let want = format!("at least {TOKEN_MIN} ASCII characters that can be printed, without a blank at either end");
        return Err(from.refuse("admin.token", "(hidden)", want));
    }
    let filter = from.text("log.level", "info")?;
    telemetry::check(&filter).map_err(|want| from.refuse("log.level", &filter, want))?;
    let json = from.choice("log.format", &[("text", false), ("json", true)])?;
    let tokens = from.path("server.tokens")?.filter(|path| !path.as_os_str().is_empty());
    from.set_tokens(tokens.is_some());
    from.read_open(Scope::Metrics)?;
    let mut services = Vec::new();
    for entry in SERVICES {
        services.extend(entry.read(from)?);
    }
    from.ports_differ()?;
    from.doors_are_shut()?;
    let (admin_token, log) = (admin_token.map(Into::into), Log { filter, json });
    let (connections, connections_set) = (from.connections_wanted(), from.connections_set());
    Ok(Config {
        listen,
        data,
        drain,
        threads,
        limits,
        connections,
        connections_set,
        tls,
        hosts,
        cors_origins,
        compression,
        tokens,
        open: from.open_scopes(),
        admin_token,
        log,
        services,
    })
}

/// The memory account: connection buffers within the server's total.
fn account(from: &mut Reader<'_>) -> Result<Memory, Refused> {
    let all = match from.bytes("limits.memory_bytes", 0, 0..=1 << 46)? {
        0 => memory::usual(),
        bytes => bytes,
    };
    from.set_memory(all);
    let buffers = from.bytes("limits.buffer_bytes", (160 << 20).min(all / 4).max(1 << 20), 1 << 20..=1 << 40)?;
    Ok(Memory::new(buffers, all))
}

/// Certificate and key, or neither.
fn tls(from: &mut Reader<'_>) -> Result<Option<Tls>, Refused> {
    // An empty path counts as unset, since not every variable can be unset.
    let mut path = |key| Ok(from.path(key)?.filter(|path| !path.as_os_str().is_empty()));
    let paths = (path("tls.certificate")?, path("tls.key")?, path("tls.client_ca")?);
    let missing = |key, given| Err(from.refuse(key, "", format!("the path of a PEM file, because {given} is set")));
    match paths {
        (Some(certificate), Some(key), client_ca) => Ok(Some(Tls { certificate, key, client_ca })),
        (None, None, None) => Ok(None),
        (Some(_), None, _) => missing("tls.key", "tls.certificate"),
        (None, Some(_), _) => missing("tls.certificate", "tls.key"),
        (None, None, Some(_)) => missing("tls.certificate", "tls.client_ca"),
    }
}

/// Every value with its source, as TOML with comments.
fn print(reader: &Reader<'_>) -> String {
    let (mut lines, mut last) = (Vec::new(), "");
    for (key, value) in reader.values() {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        if section != last {
            lines.extend((!last.is_empty()).then(String::new));
            lines.push(format!("[{section}]"));
            last = section;
        }
        let shown = match value {
            None => format!("# {name} is not set"),
            Some(value) => format!("{name} = {value}"),
        };
        lines.push(format!("{shown:<40} # {}", reader.source(key)));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::{Layers, Reader, file::unknown, print, read_all, sources::ignored};

    #[test]
    fn the_defaults_are_valid_and_shown_by_section() {
        let nothing = Layers::new();
        let mut reader = Reader::new(&nothing);
        read_all(&mut reader).map(drop).expect("valid defaults");
        let page = print(&reader);
        let sections: Vec<&str> = page.lines().filter(|line| line.starts_with('[')).collect();
        let mut once = sections.clone();
        once.dedup();
        assert_eq!(sections, once);
        assert!(page.lines().any(|line| line.starts_with("listen = \"127.0.0.1:10086\" ")), "{page}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest_one() {
        let nothing = Layers::new();
        let mut reader = Reader::new(&nothing);
        read_all(&mut reader).map(drop).expect("valid defaults");
        let known: Vec<&str> = reader.values().keys().copied().collect();
        for (key, meant) in [
            ("ledger.comit", "did you mean ledger.commit?"),
            ("server.calls_in_flight", "did you mean limits.calls_in_flight?"),
            ("leger.commit", "did you mean ledger.commit?"),
            ("sky.colour", "`quire serve --print-config` shows all"),
        ] {
            assert_eq!(unknown(key, None, &known), format!("there is no setting {key}; {meant}"));
        }
        for (name, meant) in [
            ("QUIRE_LEDGER_COMIT", "; did you mean QUIRE_LEDGER_COMMIT?"),
            ("QUIRE_DATA", "; did you mean QUIRE_SERVER_DATA?"),
            ("QUIRE_PORT", ""),
            ("QUIRE_SERVICE_HOST", "; did you mean QUIRE_SERVER_HOSTS?"),
            ("QUIRE_PORT_10086_TCP_ADDR", ""),
        ] {
            assert_eq!(ignored(name, &known), format!("the variable {name} is ignored: it names no setting{meant}"));
        }
    }
}
