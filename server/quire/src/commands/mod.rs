//! The commands besides `serve`, and what those that connect share: TLS, and errors with their meaning.

pub(crate) mod admin;
pub(crate) mod backup;
pub(crate) mod data;
pub(crate) mod game;
pub(crate) mod health;
pub(crate) mod kv;
pub(crate) mod receipt;
pub(crate) mod tasks;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod verify;

use std::sync::Arc;

use hosting::address::Target;
use quire_rpc::{
    client::{NO_TLS, ONLY_TLS, UNTRUSTED},
    rustls::ClientConfig,
};

use crate::{cli::AccessArgs, transport::tls};

impl AccessArgs {
    /// Client TLS settings; `None` for plaintext.
    fn tls(&self, target: &Target) -> anyhow::Result<Option<Arc<ClientConfig>>> {
        if !target.tls {
            return Ok(None);
        }
        let own = self.certificate.as_deref().zip(self.key_file.as_deref());
        Ok(Some(tls::client(self.ca.as_deref(), own)?))
    }
}

/// Refuses an answer in plain text that begins as a TLS alert or handshake.
fn check_plain(answer: &[u8]) -> anyhow::Result<()> {
    anyhow::ensure!(!matches!(answer, [0x15 | 0x16, 3, ..]), "{ONLY_TLS}");
    Ok(())
}

/// An error with what it means, if it is that of a handshake.
fn explained(error: anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    if text.contains("invalid peer certificate") {
        error.context(format!("{UNTRUSTED}; --ca FILE names the certificates that are"))
    } else if text.contains("InvalidContentType") {
        error.context(NO_TLS)
    } else if text.contains("CertificateRequired") {
        error.context("the server requires a client certificate: --certificate FILE and --key-file FILE")
    } else {
        error
    }
}
