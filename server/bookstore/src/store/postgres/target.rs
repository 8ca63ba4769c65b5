//! Address of the database: the hosts of a URL, each with the same user, the check of their certificates, and the time of
//! the primary's last answer.

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer, pki_types::pem::PemObject as _};

/// The safe forms of `sslmode`; the others may fall back to plain text.
const MODES: &str = "'disable', or 'verify-full' (which 'require' means here as well)";

/// Reason why a URL cannot be used. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Not a URL of `PostgreSQL`.
    #[error("ledger.url is not of the form postgres://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE ({0})")]
    Form(String),
    /// An unsafe TLS mode.
    #[error("ledger.url has sslmode={0}; it must be {MODES}")]
    Mode(String),
    /// The authorities' certificates cannot be read.
    #[error("cannot read the certificates in {path}: {reason}")]
    Roots {
        /// The file, or the system's store.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// A database on one or several hosts, of which one accepts writes.
pub(super) struct Target {
    /// One for each host.
    pub(super) hosts: Vec<Config>,
    pub(super) tls: MakeRustlsConnect,
    /// Hosts and database, for messages.
    pub(super) name: String,
    /// Timeout of a round trip and of opening a connection.
    pub(super) timeout: Duration,
    pub(super) pulse: Arc<Pulse>,
}

impl Target {
    /// Parses a URL; `authorities` is a PEM file of certificates to trust instead of the system's.
    pub(super) fn new(url: &str, authorities: Option<&Path>, timeout: Duration) -> Result<Self, TargetError> {
        let (plain, mode) = without_mode(url)?;
        // The error omits the URL, which may contain a password.
        let config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            TargetError::Form(cause)
        })?;
        if config.get_hosts().is_empty() || !config.get_hostaddrs().is_empty() {
            return Err(TargetError::Form("it must name hosts, and no hostaddr".to_owned()));
        }
        let mode = mode.unwrap_or_else(|| {
            if config.get_hosts().iter().all(is_here) { SslMode::Disable } else { SslMode::Require }
        });
        let port = |index: usize| *config.get_ports().get(index).or(config.get_ports().first()).unwrap_or(&5432);
        let hosts = config.get_hosts().iter().enumerate();
        let hosts =
            hosts.map(|(number, host)| host_config(&config, host, port(number), mode, timeout)).collect::<Vec<_>>();
        let shown = config.get_hosts().iter().enumerate().map(|(number, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(number)),
            Host::Unix(path) => format!("{}:{}", path.display(), port(number)),
        });
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
        let name = format!("postgres://{}/{database}", shown.collect::<Vec<_>>().join(","));
        let roots = if mode == SslMode::Disable { RootCertStore::empty() } else { roots(authorities)? };
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let pulse = Arc::new(Pulse::new(timeout));
        Ok(Self { hosts, tls: MakeRustlsConnect::new(tls), name, timeout, pulse })
    }
}

/// Time of the primary's last answer, on any connection. Silence counts from there: a silent primary is noticed in time
/// even if it is asked late, and one that answers on another connection is not given up.
#[derive(Debug)]
pub(super) struct Pulse {
    begun: Instant,
    /// In milliseconds after `begun`.
    answered_ms: AtomicU64,
    /// Longest silence of the primary.
    patience: Duration,
}

impl Pulse {
    pub(super) fn new(patience: Duration) -> Self {
        Self { begun: Instant::now(), answered_ms: AtomicU64::new(0), patience }
    }

    /// Notes an answer of the primary.
    pub(super) fn beat(&self) {
        self.answered_ms.store(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    fn silence(&self) -> Duration {
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.answered_ms.load(Relaxed)))
    }

    /// True if it must be asked now: later, too little time would be left for its answer.
    pub(super) fn is_due(&self) -> bool {
        self.silence() >= self.patience / 2
    }

    /// Time limit for the answer to a question asked now.
    pub(super) fn wait(&self) -> Duration {
        self.patience.saturating_sub(self.silence()).max(self.patience / 2)
    }
}

/// Configuration of a single host: all are tried at once, and a frozen one must not delay the others.
fn host_config(all: &Config, host: &Host, port: u16, mode: SslMode, timeout: Duration) -> Config {
    let mut config = Config::new();
    match host {
        Host::Tcp(name) => config.host(name.as_str()),
        Host::Unix(path) => config.host_path(path),
    };
    config.port(port).ssl_mode(mode).target_session_attrs(TargetSessionAttrs::ReadWrite);
    config.application_name(all.get_application_name().unwrap_or("quire"));
    config.connect_timeout(timeout).tcp_user_timeout(timeout * 2);
    // The system counts in whole seconds.
    config.keepalives_idle(timeout.max(Duration::from_secs(1)));
    if let Some(user) = all.get_user() {
        config.user(user);
    }
    if let Some(password) = all.get_password() {
        config.password(password);
    }
    if let Some(database) = all.get_dbname() {
        config.dbname(database);
    }
    if let Some(options) = all.get_options() {
        config.options(options);
    }
    config.channel_binding(all.get_channel_binding());
    config
}

/// The URL without `sslmode`, and the mode.
fn without_mode(url: &str) -> Result<(String, Option<SslMode>), TargetError> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(TargetError::Form("it does not begin with postgres://".to_owned()));
    }
    let Some((front, options)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let (mut rest, mut mode) = (Vec::new(), None);
    for option in options.split('&') {
        mode = match option.strip_prefix("sslmode=") {
            None => {
                rest.push(option);
                continue;
            }
            Some("disable") => Some(SslMode::Disable),
            Some("require" | "verify-full") => Some(SslMode::Require),
            Some(other) => return Err(TargetError::Mode(other.to_owned())),
        };
    }
    let plain = if rest.is_empty() { front.to_owned() } else { format!("{front}?{}", rest.join("&")) };
    Ok((plain, mode))
}

/// True if the traffic stays on this machine.
fn is_here(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
    }
}

fn roots(authorities: Option<&Path>) -> Result<RootCertStore, TargetError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = authorities {
        let failed = |reason: String| TargetError::Roots { path: path.to_owned(), reason };
        let file = File::open(path).map_err(|error: io::Error| failed(error.to_string()))?;
        for certificate in CertificateDer::pem_reader_iter(BufReader::new(file)) {
            let certificate = certificate.map_err(|error| failed(error.to_string()))?;
            roots.add(certificate).map_err(|error| failed(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(failed("it holds none".to_owned()));
        }
    } else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let reason = "there are none; name a PEM file in ledger.ca".to_owned();
            return Err(TargetError::Roots { path: PathBuf::from("the system's store"), reason });
        }
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, String> {
        Target::new(url, None, Duration::from_secs(1)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_host_has_its_port_and_no_name_shows_the_password() {
        let target = target("postgres://till:secret@127.0.0.1:5001,localhost:5002/shop?sslmode=disable").unwrap();
        assert_eq!(target.name, "postgres://127.0.0.1:5001,localhost:5002/shop");
        let ports: Vec<&[u16]> = target.hosts.iter().map(Config::get_ports).collect();
        assert_eq!(ports, [&[5001], &[5002]]);
        assert!(target.hosts.iter().all(|host| host.get_user() == Some("till") && host.get_password().is_some()));
    }

    #[test]
    fn beyond_loopback_there_is_tls_unless_it_is_switched_off_by_name() {
        for (url, mode) in [
            ("postgres://127.0.0.1/shop", SslMode::Disable),
            ("postgres://%2Frun%2Fpostgresql/shop", SslMode::Disable),
            ("postgres://10.0.0.1/shop?sslmode=disable", SslMode::Disable),
            ("postgres://127.0.0.1/shop?sslmode=verify-full&application_name=a", SslMode::Require),
            ("postgres://127.0.0.1,10.0.0.1/shop", SslMode::Require),
        ] {
            match target(url) {
                Ok(target) => assert!(target.hosts.iter().all(|host| host.get_ssl_mode() == mode), "{url}"),
                // A machine without authorities' certificates.
                Err(error) => assert!(mode == SslMode::Require && error.contains("ledger.ca"), "{error}"),
            }
        }
        for mode in ["prefer", "allow", "verify-ca", ""] {
            let error = target(&format!("postgres://127.0.0.1/shop?sslmode={mode}")).err().unwrap();
            assert!(error.contains(&format!("sslmode={mode};")), "{error}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_without_showing_it() {
        for url in ["mysql://till:secret@db/shop", "postgres:///shop", "postgres://till:secret@db:x/shop", "secret"] {
            let error = target(url).err().unwrap();
            assert!(error.starts_with("ledger.url is not of the form") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_primary_that_has_been_silent_is_waited_for_no_longer_than_one_that_falls_silent_now() {
        let silent_for = |time| {
            let begun = Instant::now().checked_sub(Duration::from_secs(time)).expect("the machine is up for long");
            Pulse { begun, answered_ms: AtomicU64::new(0), patience: Duration::from_secs(10) }
        };
        let seconds = |pulse: &Pulse| (pulse.is_due(), pulse.wait().as_millis().div_ceil(1000));
        assert_eq!([0, 3, 6].map(|time| seconds(&silent_for(time))), [(false, 10), (false, 7), (true, 5)]);
        let pulse = silent_for(6);
        pulse.beat();
        assert_eq!(seconds(&pulse), (false, 10));
        // A process that stood still received nothing meanwhile, and asks.
        assert_eq!(seconds(&silent_for(60)), (true, 5));
    }
}
