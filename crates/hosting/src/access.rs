//! Which callers may act as operators. Must not know what operators do.

use std::{net::SocketAddr, sync::Arc};

use quire_rpc::{Metadata, Status};

/// Which callers may use the services of operators.
#[derive(Clone, Debug)]
pub enum Access {
    /// Every caller: only processes of this machine can connect.
    Open,
    /// Callers that send this token.
    Token(Arc<str>),
    /// No one: other machines can connect and there is no token.
    NoOne,
}

impl Access {
    /// The access to a server that listens at `address`.
    pub fn new(token: Option<Arc<str>>, address: SocketAddr) -> Self {
        match token {
            Some(token) => Self::Token(token),
            None if address.ip().is_loopback() => Self::Open,
            None => Self::NoOne,
        }
    }

    /// Refuses a call whose metadata does not admit it.
    pub fn check(&self, metadata: &Metadata) -> Result<(), Status> {
        let token = match self {
            Self::Open => return Ok(()),
            Self::Token(token) => token,
            Self::NoOne => {
                return Err(Status::unauthenticated(
                    "operator actions are off while the server listens beyond loopback without a token; set admin.token",
                ));
            }
        };
        let sent = metadata.get("authorization").and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let is_equal = sent.is_some_and(|sent| {
            // Every byte is compared, so that the time taken does not tell how many are right.
            sent.len() == token.len() && sent.iter().zip(token.bytes()).fold(0, |seen, (a, b)| seen | (a ^ b)) == 0
        });
        if is_equal {
            Ok(())
        } else {
            Err(Status::unauthenticated("send the operator's token as 'authorization: Bearer TOKEN'"))
        }
    }
}
