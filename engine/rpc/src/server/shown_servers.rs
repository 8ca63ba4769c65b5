//! Servers that the channelz service shows, with their connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use quire_net::Shares;

use super::registry::ConnectionState;
use super::shown::{ShownSocket, next_id};
use crate::status::Code;

/// Servers until they are dropped; clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct ShownServers(Arc<Mutex<Vec<Weak<ShownServer>>>>);

impl ShownServers {
    pub(crate) fn add(&self, server: &Arc<ShownServer>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(server));
    }

    /// The servers by their ids.
    pub(crate) fn list(&self) -> BTreeMap<i64, Arc<ShownServer>> {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|server| server.strong_count() > 0);
        servers.iter().filter_map(Weak::upgrade).map(|server| (server.id, server)).collect()
    }
}

/// A shown server.
pub(crate) struct ShownServer {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) calls_succeeded: AtomicI64,
    pub(crate) calls_failed: AtomicI64,
    /// Calls in flight.
    pub(crate) calls: Shares,
    sockets: Mutex<BTreeMap<i64, Arc<ConnectionState>>>,
}

impl ShownServer {
    pub(crate) fn new(name: String, calls: Shares) -> Self {
        let (calls_succeeded, calls_failed, sockets) = Default::default();
        Self { id: next_id(), name, calls_succeeded, calls_failed, calls, sockets }
    }

    /// Counts equal calls that ended.
    pub(crate) fn count(&self, code: Code, calls: u32, connection: Option<&ConnectionState>) {
        let ended = if code == Code::Ok { &self.calls_succeeded } else { &self.calls_failed };
        ended.fetch_add(calls.into(), Relaxed);
        if let Some(socket) = connection.and_then(|connection| connection.socket.get()) {
            socket.calls_ended.fetch_add(calls.into(), Relaxed);
        }
    }

    /// Shows a connection until the result is dropped.
    pub(crate) fn open(self: &Arc<Self>, connection: &Arc<ConnectionState>, local: Option<SocketAddr>) -> OpenSocket {
        let id = connection.socket.get_or_init(|| Box::new(ShownSocket::new(local))).id;
        self.sockets().insert(id, Arc::clone(connection));
        OpenSocket { server: Arc::clone(self), id }
    }

    /// The open connections, by their ids.
    pub(crate) fn sockets(&self) -> MutexGuard<'_, BTreeMap<i64, Arc<ConnectionState>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection among those of its server.
pub(crate) struct OpenSocket {
    server: Arc<ShownServer>,
    id: i64,
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.server.sockets().remove(&self.id);
    }
}
