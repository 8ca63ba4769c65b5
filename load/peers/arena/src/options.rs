//! The command line of an engine: `NAME LISTEN [--redis ADDRESS] [--tls CERTIFICATE KEY] [--bytes]`.

use std::{env, error::Error, fs, net::SocketAddr, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// Options of a server.
#[derive(Debug)]
pub struct Options {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Address of the Redis server with the fortunes.
    pub redis: Option<String>,
    /// Certificate for TLS; plain HTTP/2 without one.
    pub tls: Option<Pem>,
    /// True to handle messages as bytes, if the engine supports that.
    pub bytes: bool,
}

/// A certificate and its key in PEM.
#[derive(Debug)]
pub struct Pem {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl Options {
    /// Parses the arguments of the process.
    pub fn read() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut words = env::args().skip(1);
        let usage = "usage: NAME LISTEN [--redis ADDRESS] [--tls CERTIFICATE KEY] [--bytes]";
        let listen = words.next().ok_or(usage)?.parse()?;
        let mut options = Self { listen, redis: None, tls: None, bytes: false };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--redis" => options.redis = Some(words.next().ok_or(usage)?),
                "--tls" => {
                    // All engines use the same crypto provider, even those without a rustls configuration.
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
    /// TLS configuration of rustls, with HTTP/2 only.
    pub fn config(&self) -> Result<Arc<ServerConfig>, Box<dyn Error + Send + Sync>> {
        let certificate = CertificateDer::from_pem_slice(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)?;
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}
