//! Listening ports: binding, with errors that name the remedy, and the admission of connections.

use std::{
    collections::HashMap,
    io::{self, ErrorKind},
    net::{self, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use quire_net::{Client, Live, Permit, Permits};
use quire_rpc::{Code, rustls::ServerConfig};
use tokio::net::{TcpListener, TcpSocket};

use crate::{
    Error,
    access::{Authenticator, Challenge},
};

/// A listening address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The address.
    pub address: SocketAddr,
    /// True if configured by file, variable or flag; false for the default.
    pub is_named: bool,
}

/// Most connections that wait to be accepted; `net.core.somaxconn` may lower it. Beyond it the kernel drops a client's
/// SYN, and the client tries again after a second.
const WAITING_MAX: u32 = 4096;

/// Listeners: sockets that a service manager opened and passed on, and new ones for all other addresses.
#[derive(Debug, Default)]
pub struct Sockets {
    passed: Vec<net::TcpListener>,
    /// The addresses asked for so far, and their settings.
    asked: Vec<String>,
}

impl Sockets {
    /// Sockets that listen already.
    pub fn passed(passed: Vec<net::TcpListener>) -> Self {
        Self { passed, asked: Vec::new() }
    }

    /// Listens at an address. `how` names its setting, for the error.
    pub fn listen(&mut self, address: SocketAddr, how: &str) -> Result<TcpListener, Error> {
        if let Some(listener) = self.take(address, how)? {
            return Ok(listener);
        }
        bind(address).map_err(|error| {
            let is_in_the_way = |listener: &&net::TcpListener| {
                error.kind() == ErrorKind::AddrInUse
                    && listener.local_addr().is_ok_and(|there| there.port() == address.port())
            };
            let passed = self.passed.iter().find(is_in_the_way);
            passed.map_or_else(|| cannot_listen(address, how, &error), |listener| self.at_no_port(listener))
        })
    }

    /// As [`listen`](Self::listen), for a service beside the main port: if a default port is busy, the service goes
    /// without it, with a warning. `without` is the consequence, for the log.
    pub fn listen_beside(&mut self, port: Port, without: &str, how: &str) -> Result<Option<TcpListener>, Error> {
        let address = port.address;
        if let Some(listener) = self.take(address, how)? {
            return Ok(Some(listener));
        }
        match bind(address) {
            Ok(listener) => Ok(Some(listener)),
            Err(error) if error.kind() == ErrorKind::AddrInUse && !port.is_named => {
                tracing::warn!(
                    %address,
                    "{without}: another program listens on {address}; choose another port with {how}"
                );
                Ok(None)
            }
            Err(error) => Err(cannot_listen(address, how, &error)),
        }
    }

    /// The passed socket at this address.
    fn take(&mut self, address: SocketAddr, how: &str) -> Result<Option<TcpListener>, Error> {
        self.asked.push(format!("{address} ({how})"));
        let is_there = |listener: &net::TcpListener| listener.local_addr().is_ok_and(|there| there == address);
        let Some(place) = self.passed.iter().position(is_there) else { return Ok(None) };
        let listener = self.passed.swap_remove(place);
        listener.set_nonblocking(true)?;
        Ok(Some(TcpListener::from_std(listener)?))
    }

    /// Fails if a passed socket has an address that no port has: clients would connect to it and wait for ever.
    pub fn refuse_unused(&self) -> Result<(), Error> {
        self.passed.first().map_or(Ok(()), |listener| Err(self.at_no_port(listener)))
    }

    fn at_no_port(&self, listener: &net::TcpListener) -> Error {
        let there = listener.local_addr().map_or_else(|error| error.to_string(), |there| there.to_string());
        let ports = self.asked.join(", ");
        format!("the service manager passed a socket at {there}, but the server is set to {ports}: give both the same address").into()
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_MAX)
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

/// The connection limits with their values, each once for every port it limits.
pub type Wanted = Vec<(&'static str, usize)>;

/// The most connections of each limit, together no more than there are descriptors for.
#[derive(Clone, Debug, Default)]
pub struct Connections(Wanted);

impl Connections {
    /// Distributes `available` descriptors. The first limit, of the main port, gets its value, up to three quarters. Of
    /// the others, those within an even share get their value, and the rest share the remainder. What is left is shared
    /// evenly, for values that are raised later.
    pub fn share(mut wanted: Wanted, mut available: usize) -> Self {
        let Some(((_, first), others)) = wanted.split_first_mut() else { return Self(wanted) };
        *first = (*first).min(if others.is_empty() { available } else { available / 4 * 3 });
        available -= *first;
        let ports = others.len() + 1;
        others.sort_by_key(|(_, wanted)| *wanted);
        for (place, (_, granted)) in (0..others.len()).rev().zip(others.iter_mut()) {
            *granted = (*granted).min(available / (place + 1));
            available -= *granted;
        }
        for (_, granted) in &mut wanted {
            *granted += available / ports;
        }
        Self(wanted)
    }

    /// Connections granted to `key` with the value `wanted`: at least 1.
    pub fn granted(&self, key: &str, wanted: usize) -> usize {
        let granted = self.0.iter().filter(|(other, _)| *other == key).map(|(_, granted)| *granted);
        granted.fold(wanted, usize::min).max(1)
    }

    /// As [`granted`](Self::granted), of a number that may change.
    pub fn granted_live(&self, key: &str, wanted: &Live) -> Live {
        wanted.at_most(self.granted(key, usize::MAX))
    }
}

/// Connections that may make room for others at the same time.
const LEAVING_MAX: usize = 64;

/// Admission to a service's own port, for a protocol that is not served by the engine: permits, credentials, TLS.
#[derive(Clone, Debug)]
pub struct Acceptor {
    /// The setting that limits the connections, for logs.
    limit: &'static str,
    connections_max: Live,
    permits: Permits,
    warnings: Warnings,
    /// Set if callers need a credential.
    authenticator: Option<Authenticator>,
    /// Set if TLS is required.
    tls: Option<Arc<ServerConfig>>,
}

impl Acceptor {
    /// Admits `connections_max` connections, the value of the setting `limit`.
    pub fn new(limit: &'static str, connections_max: Live) -> Self {
        let permits = permits(&connections_max, false);
        Self { limit, connections_max, permits, warnings: Warnings::default(), authenticator: None, tls: None }
    }

    /// Requires the credentials that `authenticator` does, and TLS if `tls` is set.
    #[must_use]
    pub fn guarded(self, authenticator: Authenticator, tls: Option<Arc<ServerConfig>>) -> Self {
        let authenticator = Some(authenticator).filter(Authenticator::is_required);
        Self { permits: permits(&self.connections_max, authenticator.is_some()), authenticator, tls, ..self }
    }

    /// Permit for a connection of this client. Logs if there is none, or if another client makes room.
    pub fn permit(&self, client: &Client) -> Option<Permit> {
        let permit = self.permits.take(client);
        match permit.as_ref().map(Permit::instead_of) {
            None => self.warnings.refused(self.limit, client),
            Some(Some(other)) => self.warnings.made_room(self.limit, other),
            Some(None) => {}
        }
        permit
    }

    /// The challenge for a connection, if callers need a credential.
    pub fn challenge(&self, address: Option<SocketAddr>, certificates: Vec<Bytes>) -> Option<Challenge> {
        self.authenticator.as_ref().map(|authenticator| authenticator.challenge(address, certificates))
    }

    /// Set if TLS is required.
    pub fn tls(&self) -> Option<&Arc<ServerConfig>> {
        self.tls.as_ref()
    }

    /// Logs that the system cannot accept a connection.
    pub fn cannot_accept(&self, error: &io::Error) {
        tracing::warn!(%error, "the system cannot accept a connection; trying again after a pause");
    }
}

/// Permits for connections, and a few more for those that make room.
fn permits(connections_max: &Live, asks_callers: bool) -> Permits {
    Permits::new(connections_max.clone(), connections_max.part(4).at_most(LEAVING_MAX), asks_callers)
}

/// Target of log lines that are bounded where they are written, or must all be written.
pub const UNBOUNDED: &str = "quire::unbounded";

/// Least time between two lines of a kind about the same limit.
const INTERVAL: Duration = Duration::from_secs(10);

/// Time of the last line, and the number left out since.
type Last = (Instant, u64);

/// Log lines about limits that clients reach. Clients can cause any number of refusals, so each limit is logged at most
/// once in an interval. Clones share the limits logged so far.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<HashMap<(&'static str, bool), Last>>>);

impl Warnings {
    /// Logs that a client was refused because of the setting `limit`.
    pub fn refused(&self, limit: &'static str, client: &Client) {
        if let Some(left_out) = self.due((limit, false)) {
            tracing::warn!(target: UNBOUNDED, %client, limit, left_out, "a client is refused: it has its share of a limit, or all is taken");
        }
    }

    /// Logs that a client lost a part of `limit` to another client.
    pub fn made_room(&self, limit: &'static str, client: &Client) {
        if let Some(left_out) = self.due((limit, true)) {
            tracing::warn!(target: UNBOUNDED, %client, limit, left_out, "a limit is reached: the client that can best spare it makes room");
        }
    }

    /// Logs that calls of a client ended with this code; the last one for this reason.
    pub fn call_refused(&self, code: Code, client: &Client, reason: &str) {
        if let Some(left_out) = self.due((code.name(), false)) {
            tracing::warn!(target: UNBOUNDED, %client, reason, left_out, "calls of a client are refused");
        }
    }

    /// Number of lines of the kind that were left out, if one may be written; otherwise counts this one.
    fn due(&self, kind: (&'static str, bool)) -> Option<u64> {
        let (mut written, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        match written.get_mut(&kind) {
            Some((at, left_out)) if now.duration_since(*at) < INTERVAL => {
                *left_out += 1;
                None
            }
            _ => Some(written.insert(kind, (now, 0)).map_or(0, |(_, left_out)| left_out)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_cannot_be_bound_is_reported_with_a_remedy() {
        let said = |kind| cannot_listen(([127, 0, 0, 1], 80).into(), "--listen", &io::Error::from(kind)).to_string();
        assert_eq!(
            said(ErrorKind::PermissionDenied),
            "cannot listen on 127.0.0.1:80: a port below 1024 needs CAP_NET_BIND_SERVICE; grant it, or choose a port \
             above 1023 with --listen"
        );
        assert!(said(ErrorKind::AddrInUse).contains("another program does"));
        assert!(said(ErrorKind::AddrNotAvailable).contains("this machine has no such address"));
    }

    #[test]
    fn the_main_port_comes_first_and_small_wants_before_large_ones() {
        let wanted = vec![("main", 10_000), ("b", 16_384), ("c", 256), ("d", 4096)];
        let granted = |available| {
            let connections = Connections::share(wanted.clone(), available);
            wanted.clone().into_iter().map(|(key, wanted)| connections.granted(key, wanted)).collect::<Vec<_>>()
        };
        assert_eq!(granted(1 << 20), [10_000, 16_384, 256, 4096]);
        assert_eq!(granted(20_000), [10_000, 5648, 256, 4096]);
        assert_eq!(granted(400), [300, 34, 33, 33]);
        assert_eq!(granted(0), [1, 1, 1, 1]);
        assert_eq!(Connections::default().granted("a", 7), 7);
        let raised = Connections::share(vec![("main", 10), ("b", 10)], 100);
        assert_eq!([raised.granted("main", 10), raised.granted("main", 99), raised.granted("b", 99)], [10, 50, 50]);
    }
}
