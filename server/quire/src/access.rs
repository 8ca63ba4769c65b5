//! How the commands that are clients get in: the TLS and the token of their flags. Must not know any command.

use std::sync::Arc;

use anyhow::bail;
use hosting::address::Target;
use quire_rpc::rustls::ClientConfig;

use crate::{cli::AccessArgs, transport::tls};

impl AccessArgs {
    /// A client's side of TLS; `None` if the server is reached in clear.
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
