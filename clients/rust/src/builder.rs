//! Construction of clients: server addresses, trusted authorities and credentials.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use quire_rpc::{
    client::{Channel, Settings},
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use crate::{address::Address, attempts::Terms, client::Client, error::Error, lanes::Lanes};

/// Time limit for TCP, TLS and the server's first frame.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);
const RECONNECT_FIRST: Duration = Duration::from_millis(50);
/// A server that is back is found within this time.
const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// Time without a byte after which a connection with a waiting call is pinged; also the time limit for the answer.
const KEEPALIVE: Duration = Duration::from_secs(10);
const TERMS: Terms = Terms { timeout: None, deadline: None, retries: 3 };
/// A value of 1 GiB, the largest that a server can be set to keep, with what is around it.
const MESSAGE_BYTES_MAX: usize = (1 << 30) + (1 << 20);

impl Client {
    /// Creates a client of the servers at one or several addresses, separated by commas: `HOST:PORT`, a host, or
    /// `:PORT`, with `https://` before it for TLS with the system's certificates. It connects on the first call. Must
    /// be called within a tokio runtime.
    pub fn connect(addresses: &str) -> Result<Self, Error> {
        Self::builder(addresses).connect()
    }

    /// A client over a channel that the caller has made, such as one within the process.
    pub fn over(channel: Channel) -> Self {
        Self::new(Lanes::new("the server", vec![channel]), TERMS)
    }

    /// Like [`Client::connect`], with further options.
    pub fn builder(addresses: &str) -> Builder {
        Builder::new(addresses)
    }
}

/// Builds a [`Client`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    addresses: String,
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    token: Option<String>,
    terms: Terms,
    keepalive: Duration,
}

impl Builder {
    fn new(addresses: &str) -> Self {
        let addresses = addresses.to_owned();
        Self { addresses, ca: None, identity: None, token: None, terms: TERMS, keepalive: KEEPALIVE }
    }

    /// A PEM file of trusted certificates, replacing the system's.
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// PEM files with a client certificate and its private key, for servers that require one.
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Token sent with calls, in printable ASCII.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// See [`Client::with_timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.terms.timeout = Some(timeout);
        self
    }

    /// See [`Client::with_retries`].
    pub fn retries(mut self, retries: u32) -> Self {
        self.terms.retries = retries;
        self
    }

    /// Time without input after which a connection with a waiting call is pinged, and time limit for the answer; 10 s
    /// by default.
    pub fn keepalive(mut self, time: Duration) -> Self {
        self.keepalive = time;
        self
    }

    /// Creates the client, which connects on the first call. Must be called within a tokio runtime.
    pub fn connect(self) -> Result<Client, Error> {
        let addresses = Address::parse_all(&self.addresses)?;
        let tls = if addresses.iter().any(|address| address.is_tls) { Some(self.tls()?) } else { None };
        let channels = addresses.iter().map(|address| self.channel(address, tls.as_ref().filter(|_| address.is_tls)));
        let lanes = Lanes::new(&self.addresses, channels.collect::<Result<_, _>>()?);
        let lanes = match &self.token {
            Some(token) => lanes.with_token(token)?,
            None => lanes,
        };
        Ok(Client::new(lanes, self.terms))
    }

    fn channel(&self, address: &Address, tls: Option<&Arc<ClientConfig>>) -> Result<Channel, Error> {
        let settings = Settings {
            message_bytes_max: MESSAGE_BYTES_MAX,
            connect_timeout: CONNECT_TIMEOUT,
            reconnect_first: RECONNECT_FIRST,
            reconnect_max: RECONNECT_MAX,
            keepalive_interval: Some(self.keepalive),
            keepalive_timeout: self.keepalive,
            user_agent: concat!("quire-client-rust/", env!("CARGO_PKG_VERSION")),
            ..Settings::default()
        };
        let wrong = |error: quire_rpc::client::ConnectError| Error::argument(error.to_string());
        let mut builder = Channel::builder(&address.url()).map_err(wrong)?.settings(settings);
        if let Some(tls) = tls {
            builder = builder.tls(Arc::clone(tls)).map_err(wrong)?;
        }
        builder.connect_lazy().map_err(wrong)
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut roots = RootCertStore::empty();
        if let Some(ca) = &self.ca {
            for certificate in certificates(ca)? {
                roots.add(certificate).map_err(|_| unreadable(ca))?;
            }
        } else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else { return Ok(Arc::new(builder.with_no_client_auth())) };
        let private = PrivateKeyDer::from_pem_file(key).map_err(|_| unreadable(key))?;
        let fits =
            |_| Error::Argument(format!("{} and {} do not belong together", certificate.display(), key.display()));
        Ok(Arc::new(builder.with_client_auth_cert(certificates(certificate)?, private).map_err(fits)?))
    }
}

/// Certificates of a file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.ok().filter(|found| !found.is_empty()).ok_or_else(|| unreadable(file))
}

fn unreadable(file: &Path) -> Error {
    Error::Argument(format!("cannot read {}", file.display()))
}
