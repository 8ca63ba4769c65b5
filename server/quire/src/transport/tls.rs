//! TLS from PEM files.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use quire_rpc::rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

use super::certificate::{Certificate, certificates};
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
