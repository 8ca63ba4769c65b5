//! Listening ports, and errors for those that cannot be bound.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
};

use tokio::net::TcpListener;

use crate::error::Error;

/// A listening address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The address.
    pub address: SocketAddr,
    /// True if configured by file, variable or flag; false for the default.
    pub is_named: bool,
}

/// Listens at an address. `how` names its setting, for the error.
pub async fn listen(address: SocketAddr, how: &str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| cannot_listen(address, how, &error))
}

/// As [`listen`], for a service beside the main port: if a default port is busy, the service goes without it, with a
/// warning. `without` is the consequence, for the log.
pub async fn listen_beside(port: Port, without: &str, how: &str) -> Result<Option<TcpListener>, Error> {
    let address = port.address;
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == ErrorKind::AddrInUse && !port.is_named => {
            tracing::warn!(%address, "{without}: another program listens on {address}; choose another port with {how}");
            Ok(None)
        }
        Err(error) => Err(cannot_listen(address, how, &error)),
    }
}

/// The error with its remedy.
fn cannot_listen(address: SocketAddr, how: &str, error: &io::Error) -> Error {
    let why = match error.kind() {
        ErrorKind::AddrInUse => format!("another program does; end it or choose another port with {how}"),
        ErrorKind::PermissionDenied => {
            format!("a port below 1024 needs CAP_NET_BIND_SERVICE; grant it, or choose a port above 1023 with {how}")
        }
        ErrorKind::AddrNotAvailable => format!(
            "this machine has no such address; choose one of its own, or :{} for all, with {how}",
            address.port()
        ),
        _ => format!("{error}; choose an address of this machine with {how}"),
    };
    format!("cannot listen on {address}: {why}").into()
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::cannot_listen;

    #[test]
    fn a_port_that_cannot_be_had_is_told_with_what_would_help() {
        let said = |kind| cannot_listen(([127, 0, 0, 1], 80).into(), "--listen", &Error::from(kind)).to_string();
        assert_eq!(
            said(ErrorKind::PermissionDenied),
            "cannot listen on 127.0.0.1:80: a port below 1024 needs CAP_NET_BIND_SERVICE; grant it, or choose a port \
             above 1023 with --listen"
        );
        assert!(said(ErrorKind::AddrInUse).contains("another program does"));
        assert!(said(ErrorKind::AddrNotAvailable).contains("this machine has no such address"));
    }
}
