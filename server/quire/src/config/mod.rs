//! The configuration: values from a file, variables and flags, in rising order, read once into valid settings.

mod browsers;
mod changes;
pub(crate) mod reference;
mod sources;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use hosting::{Choice, Layers, Meanings, Numbers, Open, Reader, Refused, SettingsInForce, Wanted, access::Scope};
use operate::traces::Sampling;
use quire_rpc::{Encoding, Limits, client::Channel, server::Memory};
use quire_terminal::screen;

pub(crate) use self::browsers::Hosts;
use self::sources::Sources;
use crate::{
    cli::{ConfigArgs, Flag, ServeArgs},
    process,
    services::SERVICES,
    telemetry::{self, Calls, Log, Outcomes},
};

pub(crate) use self::changes::Current;
pub(crate) use self::sources::file;

/// Settings of the log and of traces, which are applied while the server runs.
const LIVE: [&str; 7] = [
    "log.level",
    "log.calls",
    "log.calls_sample",
    "log.calls_slower_than",
    "log.calls_per_second",
    "trace.sample",
    "trace.callers_per_second",
];

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
    /// The collector of traces; empty if there is none.
    pub trace_endpoint: String,
    /// Calls that are traced.
    pub traced: Sampling,
    /// The enabled services.
    pub services: Vec<Box<dyn Choice>>,
    /// Every setting, for operators.
    pub in_force: SettingsInForce,
    /// Those of them that are numbers and may change while the server runs.
    pub live: Numbers,
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
        let (layers, warnings) = load(&args.config, args.settings()?)?.valid()?;
        let mut reader = Reader::new(&layers);
        let config = read_all(&mut reader)?;
        Ok((config, [warnings, reader.warnings()].concat()))
    }

    /// Settings of a command that uses the data folder: the same as of `serve`.
    pub(crate) fn of_tool(args: &ConfigArgs) -> anyhow::Result<Self> {
        let (layers, warnings) = load(args, Vec::new())?.valid()?;
        let config = read_all(&mut Reader::new(&layers))?;
        // What does not hold as it is given concerns a server, not a tool.
        for warning in warnings {
            complain(&warning);
        }
        Ok(config)
    }

    /// The settings of the service `S`; the defaults if it is off.
    pub(crate) fn settings_of<S: Open<Settings: Clone + Default>>(&self) -> S::Settings {
        self.services.iter().find_map(|service| service.settings::<S>()).cloned().unwrap_or_default()
    }
}

/// Prints a line to standard error.
fn complain(line: &str) {
    eprintln!("quire: {}", screen::line(line));
}

fn load(args: &ConfigArgs, flags: Vec<Flag>) -> anyhow::Result<Sources> {
    let nothing = Layers::new();
    let mut defaults = Reader::new(&nothing);
    read_all(&mut defaults)?;
    let known: Vec<&str> = defaults.declared().keys().copied().collect();
    sources::read(args, flags, &known)
}

/// Settings that belong to no service.
const MEANINGS: Meanings = &[
    ("server.listen", "address of the main port"),
    ("server.data", "folder of the stores; made with the sample catalogue if absent"),
    ("server.threads", "threads that serve connections"),
    (
        "server.tokens",
        "file of credentials; with it every service requires one ([Credentials](operate/secure.md#credentials))",
    ),
    ("server.drain_seconds", "longest time from the stop signal to the end"),
    (
        "server.hosts",
        "host names accepted on loopback, beside `localhost` and addresses; a browser's request for another gets 421",
    ),
    (
        "server.cors_origins",
        "origins whose web pages may call, as `https://shop.example, http://localhost:5173`; `*` is all ([protocols.md](protocols.md))",
    ),
    (
        "server.compression",
        "compresses answers of at least 1 KiB for clients that accept it ([Compressed answers](operate/secure.md#compressed-answers-and-secrets))",
    ),
    (
        "limits.connections",
        "open connections, [shared by clients](operate/limits.md#what-a-client-can-do-to-others); health and metrics are answered beyond it",
    ),
    (
        "limits.calls_in_flight",
        "waiting calls; where a credential is required, callers without one get at most three quarters together",
    ),
    ("limits.health_watches", "calls of `Health/Watch`, among those"),
    ("limits.reflection_streams", "calls of reflection, among those"),
    ("limits.message_bytes", "length of a message, request or answer"),
    ("limits.first_byte_seconds", "silence after which a new connection is closed, with a line in the log"),
    (
        "limits.memory_bytes",
        "memory of the process, measured four times a second; 0 is three quarters of the memory of the machine or of its control group, or half of the address space (`ulimit -v`) if that is less",
    ),
    (
        "limits.buffer_bytes",
        "unread answers, and incomplete messages and heads, of all connections; a quarter of `limits.memory_bytes` if that is less",
    ),
    ("tls.certificate", "PEM file; with it and its key the server speaks TLS only"),
    ("tls.key", "PEM file of the certificate's key"),
    ("tls.client_ca", "PEM file; clients must present a certificate of this authority"),
    (
        "admin.token",
        "token of operators, with the scope `admin` alone: at least 16 ASCII characters, without a blank at either end",
    ),
    ("log.level", "a level, or a filter such as `info,kv=debug`"),
    ("log.format", "`json` for machines"),
    ("log.calls", "ended calls and HTTP requests to log ([The log of calls](operate/watch.md#the-log-of-calls))"),
    (
        "log.calls_sample",
        "share of the calls that `log.calls=all` logs; failures and calls of `log.calls_slower_than` are always logged",
    ),
    ("log.calls_slower_than", "time from which a call is logged with any outcome; 0 for none"),
    ("log.calls_per_second", "lines of calls a second; those left out are counted"),
    (
        "trace.endpoint",
        "collector of traces over OTLP, as `http://127.0.0.1:4317`; none if empty ([Traces](operate/watch.md#traces))",
    ),
    ("trace.sample", "share of the calls to trace whose caller sends no `traceparent`"),
    (
        "trace.callers_per_second",
        "calls a second to trace because their caller's `traceparent` is sampled, half of them at most for one client; those left out are counted",
    ),
];

/// Shorter tokens can be guessed.
const TOKEN_MIN: usize = 16;

fn read_all(from: &mut Reader<'_>) -> Result<Config, Refused> {
    from.describe(MEANINGS);
    let listen = from.port("server.listen", PORT)?.address;
    let data = PathBuf::from(from.text("server.data", "quire-data")?);
    if data.as_os_str().is_empty() {
        return Err(from.refuse("server.data", "", "a folder"));
    }
    let drain = from.seconds("server.drain_seconds", Duration::from_secs(10))?;
    let threads = from.cores("server.threads")?;
    let hosts = browsers::hosts(from)?;
    let cors_origins = browsers::origins(from)?;
    let compression = compression(from)?;
    let limits = Limits {
        connections_max: from.connections("limits.connections", 4096)?,
        calls_max: from.live("limits.calls_in_flight", 16_384, 1..=1 << 24)?,
        health_watches_max: from.live("limits.health_watches", 1024, 1..=1 << 24)?,
        reflection_streams_max: from.live("limits.reflection_streams", 128, 1..=1 << 24)?,
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
    for key in LIVE {
        from.mark_reloaded(key);
    }
    let filter = from.text("log.level", "info")?;
    telemetry::check(&filter).map_err(|want| from.refuse("log.level", &filter, want))?;
    let json = from.choice("log.format", &[("text", false), ("json", true)])?;
    let calls = calls(from)?;
    let (trace_endpoint, traced) = traces(from)?;
    let tokens = from.reloaded_path("server.tokens")?.filter(|path| !path.as_os_str().is_empty());
    from.set_tokens(tokens.is_some());
    from.read_open(Scope::Metrics)?;
    let mut services = Vec::new();
    for entry in SERVICES {
        services.extend(entry.read(from)?);
    }
    from.ports_differ()?;
    from.refuse_exposed()?;
    let (admin_token, log) = (admin_token.map(Into::into), Log { filter, json, calls });
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
        trace_endpoint,
        traced,
        services,
        in_force: from.in_force(),
        live: from.live_numbers(),
    })
}

/// The log of calls.
fn calls(from: &mut Reader<'_>) -> Result<Calls, Refused> {
    let outcomes = [("off", Outcomes::None), ("failures", Outcomes::Failures), ("all", Outcomes::All)];
    let outcomes = from.choice("log.calls", &outcomes)?;
    let sample = from.share("log.calls_sample", 1.0)?;
    let slower_than = from.milliseconds("log.calls_slower_than", 0, 0..=86_400_000)?;
    let per_second = from.whole("log.calls_per_second", 100, 1..=100_000)?;
    Ok(Calls { outcomes, sample, slower_than, per_second: u32::try_from(per_second).unwrap_or(u32::MAX) })
}

/// The collector of traces, and the calls to trace.
fn traces(from: &mut Reader<'_>) -> Result<(String, Sampling), Refused> {
    let endpoint = from.text("trace.endpoint", "")?;
    let has_path =
        || endpoint.split_once("://").is_some_and(|(_, rest)| rest.trim_end_matches('/').contains(['/', '?']));
    if !endpoint.is_empty() && (Channel::builder(&endpoint).is_err() || has_path()) {
        let want = "the URL of a collector for OTLP/gRPC without a path, as http://127.0.0.1:4317";
        return Err(from.refuse("trace.endpoint", &endpoint, want));
    }
    let sample = from.share("trace.sample", 0.01)?;
    let callers_per_second = from.whole("trace.callers_per_second", 1000, 0..=1_000_000)?;
    let callers_per_second = u32::try_from(callers_per_second).unwrap_or(u32::MAX);
    Ok((endpoint, Sampling { sample, callers_per_second }))
}

/// Compression of answers.
fn compression(from: &mut Reader<'_>) -> Result<Option<Encoding>, Refused> {
    #[cfg(feature = "zstd")]
    const ZSTD: Option<Encoding> = Some(Encoding::Zstd);
    #[cfg(not(feature = "zstd"))]
    const ZSTD: Option<Encoding> = None;
    let names = [("off", Some(None)), ("gzip", Some(Some(Encoding::Gzip))), ("zstd", ZSTD.map(Some))];
    let want = "off or gzip: this build has no zstd, which `make run` leaves out to start sooner; \
                `cargo build --release -p server` has it";
    from.choice("server.compression", &names)?.ok_or_else(|| from.refuse("server.compression", "zstd", want))
}

/// The memory account: connection buffers within the server's total.
fn account(from: &mut Reader<'_>) -> Result<Memory, Refused> {
    let all = match from.bytes("limits.memory_bytes", 0, 0..=1 << 46)? {
        0 => process::usual_memory(),
        bytes => bytes,
    };
    from.set_memory(all);
    let buffers = from.bytes("limits.buffer_bytes", (160 << 20).min(all / 4).max(1 << 20), 1 << 20..=1 << 40)?;
    Ok(Memory::new(buffers, all))
}

/// Certificate and key, or neither.
fn tls(from: &mut Reader<'_>) -> Result<Option<Tls>, Refused> {
    // An empty path counts as unset, since not every variable can be unset.
    let set = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
    let (certificate, key) = (set(from.reloaded_path("tls.certificate")?), set(from.reloaded_path("tls.key")?));
    let paths = (certificate, key, set(from.path("tls.client_ca")?));
    let missing = |key, given: &str| {
        let refused = from.refuse(key, "", format!("the path of a PEM file, because {given} is set"));
        Err(Refused { key: given.to_owned(), ..refused })
    };
    match paths {
        (Some(certificate), Some(key), client_ca) => Ok(Some(Tls { certificate, key, client_ca })),
        (None, None, None) => Ok(None),
        (Some(_), None, _) => missing("tls.key", "tls.certificate"),
        (None, Some(_), _) => missing("tls.certificate", "tls.key"),
        (None, None, Some(_)) => missing("tls.certificate", "tls.client_ca"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Layers, Reader, read_all,
        reference::toml,
        sources::{ignored, unknown},
    };

    #[test]
    fn the_defaults_are_valid_and_shown_by_section() {
        let nothing = Layers::new();
        let mut reader = Reader::new(&nothing);
        read_all(&mut reader).map(drop).expect("valid defaults");
        let page = toml(&reader);
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
        let known: Vec<&str> = reader.declared().keys().copied().collect();
        for (key, meant) in [
            ("ledger.comit", "did you mean ledger.commit?"),
            ("server.calls_in_flight", "did you mean limits.calls_in_flight?"),
            ("leger.commit", "did you mean ledger.commit?"),
            ("sky.colour", "`quire config show` lists all"),
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
