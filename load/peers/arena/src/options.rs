//! The command line of an engine: `NAME LISTEN [--redis ADDRESS] [--tls CERTIFICATE KEY] [--bytes]`.

use std::{env, error::Error, fs, net::SocketAddr, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// How a server is to run.
#[derive(Debug)]
pub struct Options {
    /// Where it takes calls.
    pub listen: SocketAddr,
    /// Where the fortunes are.
    pub redis: Option<String>,
    /// Its certificate; it speaks plain HTTP/2 without one.
    pub tls: Option<Pem>,
    /// Whether to take messages as bytes, if the engine has such a form.
    pub bytes: bool,
}

/// A certificate and its key, as their files have them.
#[derive(Debug)]
pub struct Pem {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl Options {
    /// Reads the arguments of the process.
    pub fn read() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut words = env::args().skip(1);
        let usage = "usage: NAME LISTEN [--redis ADDRESS] [--tls CERTIFICATE KEY] [--bytes]";
        let listen = words.next().ok_or(usage)?.parse()?;
        let mut options = Self { listen, redis: None, tls: None, bytes: false };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--redis" => options.redis = Some(words.next().ok_or(usage)?),
                "--tls" => {
                    // All engines encrypt with the same provider, also those that are given no configuration.
                    let _ = rustls::crypto::ring::default_provider().install_default();
                    let certificate = fs::read(words.next().ok_or(usage)?)?;
                    options.tls = Some(Pem { certificate, key: fs::read(words.next().ok_or(usage)?)? });
                }
                "--bytes" => options.bytes = true,
                _ => return Err(usage.into()),
            }
        }
        Ok(options)
    }
}

impl Pem {
    /// The same for rustls, with HTTP/2 only.
    pub fn config(&self) -> Result<Arc<ServerConfig>, Box<dyn Error + Send + Sync>> {
        let certificate = CertificateDer::from_pem_slice(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)?;
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}
