//! How a client is made: where its servers are, which authorities it trusts and what it shows. Must not know calls.

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

/// Time for TCP, TLS and the server's first frame.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);
const RECONNECT_FIRST: Duration = Duration::from_millis(50);
/// A server that is back is found within this.
const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// A connection on which a call waits is pinged after this long without a byte, and the answer may take as long again.
const KEEPALIVE: Duration = Duration::from_secs(10);
const RETRIES: u32 = 3;
/// A value of 1 GiB, the largest that a server can be set to keep, with what is around it.
const MESSAGE_BYTES_MAX: usize = (1 << 30) + (1 << 20);

impl Client {
    /// A client of the servers at an address, or at several with commas between: `HOST:PORT`, a host, or `:PORT`, with
    /// `https://` before it for TLS with the system's certificates. It connects with the first call. Must be called within a
    /// tokio runtime.
    pub fn connect(addresses: &str) -> Result<Self, Error> {
        Self::builder(addresses).connect()
    }

    /// As [`Client::connect`], for what else can be chosen.
    pub fn builder(addresses: &str) -> Builder {
        Builder::new(addresses)
    }
}

/// Puts a [`Client`] together.
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
        let terms = Terms { timeout: None, deadline: None, retries: RETRIES };
        let addresses = addresses.to_owned();
        Self { addresses, ca: None, identity: None, token: None, terms, keepalive: KEEPALIVE }
    }

    /// A file of certificates in PEM that vouch for the servers', in place of the system's.
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// Files in PEM with a certificate, and its private key, to show to a server that asks for one.
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The token that calls carry; characters of ASCII that can be printed.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// As [`Client::with_timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.terms.timeout = Some(timeout);
        self
    }

    /// As [`Client::with_retries`].
    pub fn retries(mut self, retries: u32) -> Self {
        self.terms.retries = retries;
        self
    }

    /// How long a connection on which a call waits may be silent before it is pinged, and how long the answer may take; 10 s
    /// if nothing is said.
    pub fn keepalive(mut self, time: Duration) -> Self {
        self.keepalive = time;
        self
    }

    /// The client, which connects with the first call. Must be called within a tokio runtime.
    pub fn connect(self) -> Result<Client, Error> {
        let addresses = Address::parse_all(&self.addresses)?;
        let tls = if addresses.iter().any(|address| address.is_tls) { Some(self.tls()?) } else { None };
        let channels = addresses.iter().map(|address| self.channel(address, tls.as_ref().filter(|_| address.is_tls)));
        let lanes = Lanes::new(channels.collect::<Result<_, _>>()?);
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
            retry: None,
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

/// The certificates of a file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.ok().filter(|found| !found.is_empty()).ok_or_else(|| unreadable(file))
}

fn unreadable(file: &Path) -> Error {
    Error::Argument(format!("cannot read {}", file.display()))
}
