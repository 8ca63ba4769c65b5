//! Connections to the servers, used in turn among those that answer.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::{FutureExt as _, future::select_ok};
use quire_rpc::{Reach, Request, Status, client::Channel};
use tokio::time::{Instant, timeout_at};

use crate::{
    error::Error,
    wire::{
        bookstore::{admin_client::AdminClient, book_store_client::BookStoreClient},
        kv::{key_range_service_client::KeyRangeServiceClient, key_value_service_client::KeyValueServiceClient},
        quire::operator_client::OperatorClient,
    },
};

/// A server, with the stubs of its services.
pub(crate) struct Lane {
    channel: Channel,
    pub(crate) store: BookStoreClient,
    pub(crate) admin: AdminClient,
    pub(crate) operator: OperatorClient,
    pub(crate) values: KeyValueServiceClient,
    pub(crate) range: KeyRangeServiceClient,
}

impl Lane {
    fn new(channel: Channel) -> Self {
        Self {
            store: BookStoreClient::new(channel.clone()),
            admin: AdminClient::new(channel.clone()),
            operator: OperatorClient::new(channel.clone()),
            values: KeyValueServiceClient::new(channel.clone()),
            range: KeyRangeServiceClient::new(channel.clone()),
            channel,
        }
    }
}

/// The servers, which are equivalent.
pub(crate) struct Lanes {
    /// The addresses, as they were given.
    address: Arc<str>,
    servers: Vec<Lane>,
    next: Arc<AtomicUsize>,
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lanes({} servers)", self.servers.len())
    }
}

impl Lanes {
    pub(crate) fn new(address: &str, channels: Vec<Channel>) -> Self {
        Self { address: address.into(), servers: channels.into_iter().map(Lane::new).collect(), next: Arc::default() }
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Clones the connections with a token for their calls.
    pub(crate) fn with_token(&self, token: &str) -> Result<Self, Error> {
        if token.trim_ascii() != token || token.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
            return Err(Error::argument("the token has characters that cannot be sent"));
        }
        Ok(self.with([("authorization", &*format!("Bearer {token}"))]))
    }

    /// Clones the connections with these fields of metadata for their calls, without those that are empty. They can be
    /// sent: they are printable ASCII without blanks around it.
    pub(crate) fn with<const N: usize>(&self, fields: [(&'static str, &str); N]) -> Self {
        let with_fields = |lane: &Lane| {
            let fields = fields.map(|(name, value)| (name, value.to_owned()));
            lane.channel.intercepted(move |_: &str, request: &mut Request<()>| {
                for (name, value) in &fields {
                    let metadata = request.metadata_mut();
                    metadata.remove(name);
                    if !value.is_empty() {
                        // Its characters were checked.
                        let _ = metadata.append(name, value);
                    }
                }
                Ok(())
            })
        };
        let servers = self.servers.iter().map(|lane| Lane::new(with_fields(lane))).collect();
        Self { address: Arc::clone(&self.address), servers, next: Arc::clone(&self.next) }
    }

    /// Next server with a ready connection. If there is none, waits for the first.
    pub(crate) async fn ready(&self, until: Instant) -> Result<&Lane, Status> {
        let count = self.servers.len();
        let first = if count > 1 { self.next.fetch_add(1, Ordering::Relaxed) % count } else { 0 };
        let (after, before) = (&self.servers[first..], &self.servers[..first]);
        let mut turns = after.iter().chain(before);
        if let Some(lane) = turns.clone().find(|lane| lane.channel.is_ready()) {
            if !self.servers[first].channel.is_ready() {
                // It connects meanwhile, for a later call.
                let _ = self.servers[first].channel.ready().now_or_never();
            }
            return Ok(lane);
        }
        let waits = turns.by_ref().map(|lane| Box::pin(lane.channel.ready().map(move |ready| ready.map(|()| lane))));
        match timeout_at(until, select_ok(waits)).await {
            Ok(Ok((lane, _))) => Ok(lane),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Status::unavailable("no server answered in time").with_reach(Reach::Untouched)),
        }
    }
}
