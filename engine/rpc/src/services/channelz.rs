//! The channelz service (gRPC's "Channelz"): servers and their connections.
//!
//! It shows addresses and certificates of clients to all its callers: add it to a server that only operators reach, or
//! guard it by an [`Interceptor`](crate::Interceptor).
//!
//! Fields of the contract that are not named here are unset:
//!
//! - A server has its counts of calls, of all protocols. `calls_started` is the sum of those that ended and of what
//!   is in flight, HTTP requests included and the call of this service left out, read one after another: it may fall.
//! - A connection has its addresses, unless its transport has none, as Unix sockets; TLS with the cipher suite and the
//!   client's certificate; as its name the client's credential, else its address; and as `streams_started` its calls.
//! - Channels are not shown: they do not count their calls.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::Instant;

use super::proto::channelz::address::{Address as AddressKind, TcpIpAddress};
use super::proto::channelz::channelz_server::{Channelz, ChannelzServer};
use super::proto::channelz::security::tls::CipherSuite;
use super::proto::channelz::security::{Model, Tls};
use super::proto::channelz::{
    Address, GetChannelRequest, GetChannelResponse, GetServerRequest, GetServerResponse, GetServerSocketsRequest,
    GetServerSocketsResponse, GetServersRequest, GetServersResponse, GetSocketRequest, GetSocketResponse,
    GetSubchannelRequest, GetSubchannelResponse, GetTopChannelsRequest, GetTopChannelsResponse, Security, Server,
    ServerData, ServerRef, Socket, SocketData, SocketRef,
};
use crate::envelope::{Request, Response};
use crate::server::{Builder, ConnectionState, OpenConnection, Service, ShownServer, ShownServers, ShownSocket};
use crate::status::Status;

/// Limit of a page, and its size if the caller names none.
const PAGE_MAX: usize = 100;

/// Servers that the service shows, until they are dropped; clones are the same list.
#[derive(Clone, Default)]
pub struct ChannelzReporter(ShownServers);

impl ChannelzReporter {
    /// Creates a reporter without servers, and the service to add to a server.
    pub fn new() -> (Self, impl Service) {
        let reporter = Self::default();
        (reporter.clone(), ChannelzServer::new(reporter))
    }

    fn server(&self, id: i64) -> Result<Arc<ShownServer>, Status> {
        self.0.list().remove(&id).ok_or_else(|| unknown("server", id))
    }
}

impl fmt::Debug for ChannelzReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChannelzReporter({} servers)", self.0.list().len())
    }
}

impl Builder {
    /// Shows the server under this name to the callers of [`channelz`](crate::channelz), which may be a service of this
    /// server or of another. The server then counts its calls.
    pub fn channelz(self, name: impl Into<String>, reporter: &ChannelzReporter) -> Self {
        self.shown(name.into(), &reporter.0)
    }
}

fn unknown(what: &str, id: i64) -> Status {
    Status::not_found(format!("no {what} has the id {id}"))
}

/// Items from the id `start` on, and whether they are the last.
fn page<T: Clone>(items: &BTreeMap<i64, T>, start: i64, max_results: i64) -> Result<(Vec<T>, bool), Status> {
    let wanted = usize::try_from(max_results)
        .map_err(|_| Status::invalid_argument("max_results is negative: it must be 0 or the size of a page"))?;
    let size = if wanted == 0 { PAGE_MAX } else { wanted.min(PAGE_MAX) };
    let mut left = items.range(start..);
    let found = left.by_ref().take(size).map(|(_, item)| item.clone()).collect();
    Ok((found, left.next().is_none()))
}

fn server(shown: &ShownServer) -> Server {
    let (calls_succeeded, calls_failed) = (shown.calls_succeeded.load(Relaxed), shown.calls_failed.load(Relaxed));
    let calls_started = calls_succeeded + calls_failed + count(shown.calls.taken());
    let data = ServerData { calls_started, calls_succeeded, calls_failed, ..ServerData::default() };
    let server_ref = ServerRef { server_id: shown.id, name: shown.name.clone() };
    Server { r#ref: Some(server_ref), data: Some(data), ..Server::default() }
}

fn socket_ref(socket: &ShownSocket, open: &OpenConnection) -> SocketRef {
    SocketRef { socket_id: socket.id, name: open.client.to_string() }
}

fn socket(connection: &ConnectionState) -> Option<Socket> {
    let (socket, open) = (connection.socket.get()?, connection.shown(Instant::now()));
    let streams_started = socket.calls_ended.load(Relaxed) + count(open.calls_in_flight);
    let security = socket.tls.get().map(|tls| {
        let cipher_suite = tls.cipher_suite.clone().map(CipherSuite::StandardName);
        let remote_certificate = tls.certificate.as_deref().unwrap_or_default().to_vec();
        Security { model: Some(Model::Tls(Tls { cipher_suite, remote_certificate, ..Tls::default() })) }
    });
    Some(Socket {
        r#ref: Some(socket_ref(socket, &open)),
        data: Some(SocketData { streams_started, ..SocketData::default() }),
        local: socket.local.map(address),
        remote: open.address.map(address),
        security,
        ..Socket::default()
    })
}

fn address(address: SocketAddr) -> Address {
    let ip_address = match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    Address { address: Some(AddressKind::TcpipAddress(TcpIpAddress { ip_address, port: address.port().into() })) }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Channelz for ChannelzReporter {
    async fn get_top_channels(
        &self,
        _: Request<GetTopChannelsRequest>,
    ) -> Result<Response<GetTopChannelsResponse>, Status> {
        Ok(Response::new(GetTopChannelsResponse { end: true, ..GetTopChannelsResponse::default() }))
    }

    async fn get_servers(&self, request: Request<GetServersRequest>) -> Result<Response<GetServersResponse>, Status> {
        let GetServersRequest { start_server_id, max_results } = request.into_inner();
        let (servers, end) = page(&self.0.list(), start_server_id, max_results)?;
        let server = servers.iter().map(|shown| server(shown)).collect();
        Ok(Response::new(GetServersResponse { server, end }))
    }

    async fn get_server(&self, request: Request<GetServerRequest>) -> Result<Response<GetServerResponse>, Status> {
        let shown = self.server(request.get_ref().server_id)?;
        Ok(Response::new(GetServerResponse { server: Some(server(&shown)) }))
    }

    async fn get_server_sockets(
        &self,
        request: Request<GetServerSocketsRequest>,
    ) -> Result<Response<GetServerSocketsResponse>, Status> {
        let GetServerSocketsRequest { server_id, start_socket_id, max_results } = request.into_inner();
        let (open, end) = page(&self.server(server_id)?.sockets(), start_socket_id, max_results)?;
        let now = Instant::now();
        let refs = open.iter().filter_map(|open| Some(socket_ref(open.socket.get()?, &open.shown(now))));
        Ok(Response::new(GetServerSocketsResponse { socket_ref: refs.collect(), end }))
    }

    async fn get_channel(&self, request: Request<GetChannelRequest>) -> Result<Response<GetChannelResponse>, Status> {
        Err(unknown("channel", request.get_ref().channel_id))
    }

    async fn get_subchannel(
        &self,
        request: Request<GetSubchannelRequest>,
    ) -> Result<Response<GetSubchannelResponse>, Status> {
        Err(unknown("subchannel", request.get_ref().subchannel_id))
    }

    async fn get_socket(&self, request: Request<GetSocketRequest>) -> Result<Response<GetSocketResponse>, Status> {
        let id = request.get_ref().socket_id;
        let connection = self.0.list().values().find_map(|server| server.sockets().get(&id).cloned());
        let connection = connection.ok_or_else(|| unknown("socket", id))?;
        Ok(Response::new(GetSocketResponse { socket: socket(&connection) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_bound_whatever_is_asked_for() {
        let items: BTreeMap<i64, i64> = (0..=100).map(|id| (id, id)).collect();
        for asked in [0, 1000] {
            assert_eq!(page(&items, 0, asked).unwrap(), ((0..100).collect(), false));
        }
        assert_eq!(page(&items, 1, 0).unwrap(), ((1..=100).collect(), true));
    }
}
