//! TLS of a load: trusted certificates and the client's own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use quire_rpc::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use quire_rpc::rustls::crypto::CryptoProvider;
use quire_rpc::rustls::pki_types::pem::PemObject;
use quire_rpc::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use quire_rpc::rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    crypto,
};

/// TLS settings for https:// addresses.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// Certificates in PEM to trust [default: the system's]
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub ca: Option<PathBuf>,
    /// Accept any certificate: an attacker between client and server can read and change everything
    #[arg(long, conflicts_with = "ca", help_heading = "TLS")]
    pub insecure: bool,
    /// Client certificate in PEM, for servers that ask for one
    #[arg(long, value_name = "FILE", requires = "key_file", help_heading = "TLS")]
    pub certificate: Option<PathBuf>,
    /// Private key of --certificate
    #[arg(long, value_name = "FILE", requires = "certificate", help_heading = "TLS")]
    pub key_file: Option<PathBuf>,
}

impl TlsArgs {
    /// Like [`TlsArgs::config`] for an https:// address; `None` for any other, where a flag is an error.
    pub fn config_for(&self, is_https: bool) -> anyhow::Result<Option<ClientConfig>> {
        match self.given() {
            Some(flag) if !is_https => bail!("{flag} is for TLS: write an https:// address"),
            _ => is_https.then(|| self.config()).transpose(),
        }
    }

    /// The first flag that was given.
    fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--ca", self.ca.is_some()),
            ("--insecure", self.insecure),
            ("--certificate", self.certificate.is_some()),
            ("--key-file", self.key_file.is_some()),
        ];
        flags.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// Reads the files; the caller adds protocols (ALPN).
    pub fn config(&self) -> anyhow::Result<ClientConfig> {
        let provider = Arc::new(crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = if self.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        let Some((certificate, key)) = self.certificate.as_deref().zip(self.key_file.as_deref()) else {
            return Ok(builder.with_no_client_auth());
        };
        let private = PrivateKeyDer::from_pem_file(key);
        let private = private.with_context(|| format!("cannot read a private key in PEM from {}", key.display()))?;
        let fits = || format!("{} and {} are not a pair", certificate.display(), key.display());
        builder.with_client_auth_cert(certificates(certificate)?, private).with_context(fits)
    }

    fn roots(&self) -> anyhow::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        if let Some(ca) = &self.ca {
            for certificate in certificates(ca)? {
                let refused = || format!("{} holds a certificate that cannot be trusted as a root", ca.display());
                roots.add(certificate).with_context(refused)?;
            }
            return Ok(roots);
        }
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            bail!("the system has no trusted certificates: name a file of them with --ca FILE");
        }
        Ok(roots)
    }
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = || -> anyhow::Result<Vec<_>> { Ok(CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?) };
    let found = read().with_context(|| format!("cannot read certificates from {}", path.display()))?;
    if found.is_empty() {
        bail!("{} has no certificate: it must be PEM with at least one", path.display());
    }
    Ok(found)
}

/// A failed handshake in one line, with advice.
pub fn explain(error: &io::Error) -> String {
    let advice = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "; --ca FILE names a certificate to trust"
        }
        Some(Error::InvalidMessage(_)) => "; does the server speak TLS on this port?",
        Some(Error::NoApplicationProtocol | Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            "; the server does not offer this version of HTTP"
        }
        _ if error.kind() == io::ErrorKind::UnexpectedEof => "; does the server speak TLS on this port?",
        _ => "",
    };
    format!("TLS: {error}{advice}")
}

/// Verifier of `--insecure`. Signatures are still checked: a server must have the key of its certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
