//! Credentials that each port requires.

use std::{net::SocketAddr, sync::Arc};

use quire_rpc::Peer;

use super::{
    credentials::{Admitted, Credentials, Denied},
    scope::Scope,
};

/// The credentials, and the scopes that need none.
#[derive(Clone, Debug, Default)]
pub struct Doors {
    credentials: Arc<Credentials>,
    open: Arc<[Scope]>,
}

impl Doors {
    /// `open` are the scopes that need no credential anywhere.
    pub fn new(credentials: Arc<Credentials>, open: Vec<Scope>) -> Self {
        Self { credentials, open: open.into() }
    }

    /// The gate of a port for `scope`, or for a part without a scope.
    pub fn gate(&self, scope: Option<Scope>, address: SocketAddr) -> Gate {
        let is_open = scope.is_some_and(|scope| self.open.contains(&scope));
        let has_operator = scope == Some(Scope::Admin) && self.credentials.has_operator();
        let is_shut = !address.ip().is_loopback() || self.credentials.has_file() || has_operator;
        Gate { credentials: Arc::clone(&self.credentials), scope, asks: is_shut && !is_open }
    }

    /// Reads the file of credentials again. Blocks.
    pub fn reload(&self) {
        self.credentials.reload();
    }
}

/// Admits or denies callers.
#[derive(Clone, Debug)]
pub struct Gate {
    credentials: Arc<Credentials>,
    scope: Option<Scope>,
    asks: bool,
}

impl Gate {
    /// True if callers need a credential.
    pub fn asks(&self) -> bool {
        self.asks
    }

    /// The scope they need.
    pub fn scope(&self) -> Option<Scope> {
        self.scope
    }

    /// The caller's credential; `None` if none is asked for.
    pub fn admit(&self, token: Option<&[u8]>, peer: &Peer) -> Result<Option<Admitted>, Denied> {
        if !self.asks {
            return Ok(None);
        }
        let certificate = peer.certificates.first().map(|der| &der[..]);
        let address = peer.address.map(|address| address.ip());
        self.credentials.admit(self.scope, token, certificate, address).map(Some)
    }

    /// Error text for a denied caller.
    pub fn told(&self, denied: &Denied) -> String {
        let scope = self.scope.map_or("any", Scope::name);
        match denied {
            Denied::Off if self.scope == Some(Scope::Admin) => {
                "operator actions are off while the server listens beyond loopback without a token; set admin.token"
                    .to_owned()
            }
            Denied::Off => "this is off while the server listens beyond loopback without server.tokens".to_owned(),
            Denied::Missing => format!("send a token of the scope {scope} as 'authorization: Bearer TOKEN'"),
            Denied::Wrong => {
                format!(
                    "the credential is not known; send a token of the scope {scope} as 'authorization: Bearer TOKEN'"
                )
            }
            Denied::Guessing => {
                "the credential is not known, like too many from this address; try again in a minute, with one that is"
                    .to_owned()
            }
            Denied::Scope(name) => format!("the credential {name} does not have the scope {scope}"),
        }
    }
}
