//! TLS from PEM files, and the server's certificate: loading, checks and reload.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail};
use arc_swap::ArcSwap;
use hosting::files;
use quire_rpc::rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use x509_cert::{
    der::{DateTime, Decode as _},
    time::Time,
};

use crate::config::Tls;

fn roots(path: &Path) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let refused = || format!("{} holds a certificate that is not an authority's", path.display());
        roots.add(certificate).with_context(refused)?;
    }
    Ok(roots)
}

/// Server TLS settings, and the presented certificate. With `client_ca`, clients must present a certificate of that
/// authority.
pub(crate) fn server(tls: &Tls) -> anyhow::Result<(Arc<ServerConfig>, Arc<Certificate>)> {
    let builder = ServerConfig::builder();
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots(ca)?)).build();
            builder.with_client_cert_verifier(verifier.with_context(|| ca.display().to_string())?)
        }
    };
    let certificate = Certificate::read(tls, builder.crypto_provider())?;
    Ok((Arc::new(builder.with_cert_resolver(Arc::clone(&certificate) as _)), certificate))
}

/// A client's side of TLS: it trusts certificates of `ca`, or the system's (those of `SSL_CERT_FILE` if that is set), and shows
/// its certificate and key if it has them.
pub(crate) fn client(ca: Option<&Path>, own: Option<(&Path, &Path)>) -> anyhow::Result<Arc<ClientConfig>> {
    let roots = if let Some(ca) = ca {
        roots(ca)?
    } else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    };
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let Some((certificate, key)) = own else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let private = PrivateKeyDer::from_pem_file(key);
    let private = private.with_context(|| format!("cannot read a private key in PEM from {}", key.display()))?;
    let fits = || format!("{} and {} do not belong together", certificate.display(), key.display());
    Ok(Arc::new(builder.with_client_auth_cert(certificates(certificate)?, private).with_context(fits)?))
}

/// The most bytes of a file of certificates or of a key.
const FILE_BYTES_MAX: usize = 16 << 20;

/// The certificates of a file in PEM, at least one.
fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = || -> anyhow::Result<Vec<_>> {
        Ok(CertificateDer::pem_slice_iter(&files::read(path, FILE_BYTES_MAX)?).collect::<Result<_, _>>()?)
    };
    let found = read().with_context(|| format!("cannot read certificates from {}", path.display()))?;
    if found.is_empty() {
        bail!("{} holds no certificate; it must be PEM with at least one", path.display());
    }
    Ok(found)
}

/// A certificate with its key and expiry.
#[derive(Debug)]
struct Shown {
    key: Arc<CertifiedKey>,
    expires_at: i64,
}

/// The presented certificate; open connections keep theirs when it changes.
#[derive(Debug)]
pub(crate) struct Certificate {
    files: Tls,
    provider: Arc<CryptoProvider>,
    shown: ArcSwap<Shown>,
}

impl Certificate {
    /// Reads the files.
    pub(crate) fn read(files: &Tls, provider: &Arc<CryptoProvider>) -> anyhow::Result<Arc<Self>> {
        let shown = ArcSwap::from_pointee(read(files, provider)?);
        Ok(Arc::new(Self { files: files.clone(), provider: Arc::clone(provider), shown }))
    }

    /// Reads the files again. If they cannot be used, clients are shown the last certificate. Blocks.
    pub(crate) fn reload(&self) {
        let checked = [&self.files.certificate, &self.files.key]
            .into_iter()
            .try_for_each(|path| files::check_regular(path).with_context(|| format!("cannot read {}", path.display())));
        match checked.and_then(|()| read(&self.files, &self.provider)) {
            Ok(shown) => {
                let expires = date(shown.expires_at);
                self.shown.store(Arc::new(shown));
                tracing::info!(%expires, "the certificate is loaded again");
            }
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the certificate was not loaded again; the last one is still shown"
                );
            }
        }
    }

    /// Seconds until it expires; negative once it has.
    pub(crate) fn expires_in_seconds(&self) -> i64 {
        self.shown.load().expires_at.saturating_sub(now())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shown.load().key))
    }
}

fn read(tls: &Tls, provider: &CryptoProvider) -> anyhow::Result<Shown> {
    let chain = certificates(&tls.certificate)?;
    let unread = || format!("cannot read a private key in PEM from {}", tls.key.display());
    let key = files::read(&tls.key, FILE_BYTES_MAX).with_context(unread)?;
    let key = PrivateKeyDer::from_pem_slice(&key).with_context(unread)?;
    let expires_at = check_dates(&chain, &tls.certificate, now())?;
    let fits = || format!("{} and {} do not belong together", tls.certificate.display(), tls.key.display());
    let key = CertifiedKey::from_der(chain, key, provider).with_context(fits)?;
    Ok(Shown { key: Arc::new(key), expires_at })
}

/// The certificate's expiry; it must be valid now.
fn check_dates(chain: &[CertificateDer<'_>], path: &Path, now: i64) -> anyhow::Result<i64> {
    let own = chain.first().map(|own| x509_cert::Certificate::from_der(own));
    let Some(Ok(own)) = own else { bail!("{} holds a certificate that cannot be read", path.display()) };
    let validity = own.tbs_certificate.validity;
    let (from, to) = (seconds(validity.not_before), seconds(validity.not_after));
    let wrong = match now {
        now if now < from => "is not valid yet",
        now if now > to => "has expired",
        _ => return Ok(to),
    };
    bail!(
        "the certificate in {} {wrong}: it holds from {} to {}, and it is {} now; put a valid one there",
        path.display(),
        date(from),
        date(to),
        date(now)
    );
}

/// A time in a certificate, in seconds after 1970.
fn seconds(time: Time) -> i64 {
    whole(time.to_unix_duration())
}

/// A time in RFC 3339.
fn date(seconds: i64) -> String {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    DateTime::from_unix_duration(since).map_or_else(|_| format!("{seconds} s after 1970"), |time| time.to_string())
}

fn now() -> i64 {
    whole(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn whole(since: Duration) -> i64 {
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
