//! How clients speak TLS: whom they trust, and what is said when a server is not trusted.
//!
//! Must not know what is spoken over it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, ClientConfig, RootCertStore};

/// A configuration that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// `--ca` names no file of certificates.
    #[error("--ca {}: {reason}; a PEM file with the certificates to trust is wanted", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system trusts nobody.
    #[error("the system has no certificates to trust ({reason}); name some with --ca FILE")]
    NoSystemRoots {
        /// What the search for them met.
        reason: String,
    },
    /// The library refuses the settings.
    #[error("TLS cannot be set up: {0}")]
    Refused(rustls::Error),
}

/// A client that trusts the certificates of `authority`, or of the system without it, and offers these protocols.
pub fn client_config(authority: Option<&Path>, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match authority {
        Some(path) => roots_of(path)?,
        None => system_roots()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|error| TlsError::Refused(rustls::Error::General(error.to_string())))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Refused)?
        .with_webpki_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

fn roots_of(path: &Path) -> Result<RootCertStore, TlsError> {
    let failed = |reason: String| TlsError::Authority { path: path.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))? {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(failed("it holds no certificate".into()));
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(TlsError::NoSystemRoots { reason });
    }
    Ok(roots)
}

/// A failed handshake in one line, with what can be done about it.
pub fn explain(error: &io::Error) -> String {
    let advice = match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "; --ca FILE names a certificate to trust"
        }
        Some(rustls::Error::InvalidMessage(_)) => "; does the server speak TLS on this port?",
        Some(
            rustls::Error::NoApplicationProtocol
            | rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol),
        ) => "; the server does not offer this version of HTTP",
        _ if error.kind() == io::ErrorKind::UnexpectedEof => "; does the server speak TLS on this port?",
        _ => "",
    };
    format!("TLS: {error}{advice}")
}
