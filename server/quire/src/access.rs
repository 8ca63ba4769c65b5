//! TLS and token flags of the client commands.

use std::sync::Arc;

use anyhow::bail;
use hosting::address::Target;
use quire_rpc::rustls::ClientConfig;

use crate::{cli::AccessArgs, transport::tls};

impl AccessArgs {
    /// Client TLS settings; `None` for plaintext.
    pub(crate) fn tls(&self, target: &Target) -> anyhow::Result<Option<Arc<ClientConfig>>> {
        if !target.tls {
            return Ok(None);
        }
        let Some(ca) = &self.ca else {
            bail!("{} speaks TLS: name the certificates to trust with --ca FILE", target.authority())
        };
        Ok(Some(tls::client(ca, self.certificate.as_deref().zip(self.key_file.as_deref()))?))
    }
}
