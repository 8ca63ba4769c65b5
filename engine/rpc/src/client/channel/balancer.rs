//! The choice of a subchannel for each call, and round robin's subchannels to the servers of its resolver.
//!
//! Implements: gRPC's "Load Balancing in gRPC", the policies `pick_first` and `round_robin`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::{Semaphore, TryAcquireError};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::subchannel::{Reports, Subchannel};
use super::target::{ServerAddress, Target, Traffic};
use crate::client::call::attempt::{Failure, late, untouched};
use crate::client::connection;
use crate::client::settings::{ConnectBackoff, ConnectError, Settings};
use crate::status::Status;

/// The subchannels of a channel.
pub(crate) enum Balancer {
    /// Each finds its server itself; calls wait in its queue while it connects. Also round robin of HTTP/1.1, whose one
    /// subchannel has several connections.
    PickFirst(Connections),
    RoundRobin(Arc<RoundRobin>),
}

impl Balancer {
    pub(crate) fn all(&self) -> Vec<Arc<Subchannel>> {
        match self {
            Self::PickFirst(connections) => connections.subchannels.clone(),
            Self::RoundRobin(servers) => servers.read().all().cloned().collect(),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::PickFirst(connections) => connections.subchannels.iter().any(|subchannel| subchannel.is_ready()),
            Self::RoundRobin(servers) => servers.read().ready().next().is_some(),
        }
    }

    /// True if a call that does not wait for a server would fail.
    pub(crate) fn is_failing(&self) -> bool {
        match self {
            Self::PickFirst(connections) => connections.subchannels.iter().all(|subchannel| subchannel.is_failing()),
            Self::RoundRobin(servers) => servers.next().is_err(),
        }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let add = |sum: Traffic, subchannel: &Arc<Subchannel>| sum.plus(subchannel.traffic());
        match self {
            Self::PickFirst(connections) => connections.subchannels.iter().fold(Traffic::default(), add),
            Self::RoundRobin(servers) => {
                let servers = servers.read();
                servers.all().fold(servers.ended, add)
            }
        }
    }

    pub(crate) fn close(&self) {
        if let Self::RoundRobin(servers) = self {
            servers.close();
        }
        self.all().iter().for_each(|subchannel| subchannel.close());
    }
}

/// Equivalent subchannels.
pub(crate) struct Connections {
    subchannels: Vec<Arc<Subchannel>>,
    next: AtomicUsize,
}

impl Connections {
    pub(crate) fn new(subchannels: Vec<Arc<Subchannel>>) -> Self {
        Self { subchannels, next: AtomicUsize::new(0) }
    }

    /// Waits until all are ready.
    pub(crate) async fn ready(&self) -> Result<(), ConnectError> {
        for subchannel in &self.subchannels {
            subchannel.ready().await?;
        }
        Ok(())
    }

    /// The next subchannel in turn, skipping unreachable ones.
    pub(crate) fn next(&self) -> &Arc<Subchannel> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = |offset: usize| &self.subchannels[first.wrapping_add(offset) % self.subchannels.len()];
        let next = turn(0);
        if !next.is_failing() {
            return next;
        }
        let other = (1..self.subchannels.len()).map(turn).find(|subchannel| !subchannel.is_failing());
        if other.is_some() {
            // The skipped one connects meanwhile, for later calls.
            next.want();
        }
        other.unwrap_or(next)
    }
}

/// Subchannels to all servers of the resolver. Calls wait here, not at a subchannel, until one is ready.
pub(crate) struct RoundRobin {
    servers: RwLock<Servers>,
    turn: AtomicUsize,
    /// One permit for each call that may wait; closed with the channel.
    waiting: Semaphore,
    reports: Arc<Reports>,
    /// Task that runs the resolver.
    resolving: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct Servers {
    current: Vec<(ServerAddress, Arc<Subchannel>)>,
    /// Subchannels to servers that the resolver no longer has: they finish their calls.
    leaving: Vec<Arc<Subchannel>>,
    /// Traffic of those that have.
    ended: Traffic,
    /// The last failure to resolve.
    failure: Option<ConnectError>,
}

impl Servers {
    fn subchannels(&self) -> impl Iterator<Item = &Arc<Subchannel>> {
        self.current.iter().map(|(_, subchannel)| subchannel)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Subchannel>> {
        self.subchannels().chain(&self.leaving)
    }

    fn ready(&self) -> impl Iterator<Item = &Arc<Subchannel>> {
        self.subchannels().filter(|subchannel| subchannel.is_ready())
    }
}

impl RoundRobin {
    pub(crate) fn new(target: &Arc<Target>, settings: &Arc<Settings>) -> Arc<Self> {
        let this = Arc::new(Self {
            servers: RwLock::default(),
            // Clients that start together do not all begin with the same server.
            turn: AtomicUsize::new(fastrand::usize(..)),
            waiting: Semaphore::new(settings.waiting_calls_max.min(Semaphore::MAX_PERMITS)),
            reports: Arc::default(),
            resolving: OnceLock::new(),
        });
        let resolving = Arc::clone(&this).resolve(Arc::clone(target), Arc::clone(settings));
        let _ = this.resolving.set(tokio::spawn(resolving).abort_handle());
        this
    }

    fn read(&self) -> RwLockReadGuard<'_, Servers> {
        self.servers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Servers> {
        self.servers.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.resolving.get().inspect(|task| task.abort());
        let mut servers = self.write();
        self.waiting.close();
        let Servers { current, leaving, .. } = &mut *servers;
        leaving.extend(current.drain(..).map(|(_, subchannel)| subchannel));
        drop(servers);
        self.reports.states.send_replace(());
    }

    /// The next ready subchannel in turn; `None` while one may become ready. Fails if all servers fail.
    fn next(&self) -> Result<Option<Arc<Subchannel>>, ConnectError> {
        let servers = self.read();
        let (turn, count) = (self.turn.fetch_add(1, Ordering::Relaxed), servers.current.len());
        let Some((_, next)) = turn.checked_rem(count).map(|index| &servers.current[index]) else {
            self.reports.resolving.notify_one();
            return servers.failure.clone().map_or(Ok(None), Err);
        };
        if next.is_ready() {
            return Ok(Some(Arc::clone(next)));
        }
        // Those whose connection was idle for too long.
        servers.subchannels().filter(|subchannel| subchannel.is_idle()).for_each(|subchannel| subchannel.want());
        // Evenly among the others, not all to the one behind it.
        let other = (turn / count).checked_rem(servers.ready().count()).and_then(|turn| servers.ready().nth(turn));
        // One may have been lost between both looks.
        let other = other.or_else(|| servers.ready().next());
        if other.is_none() && servers.subchannels().all(|subchannel| subchannel.is_failing()) {
            return Err(next.failure());
        }
        Ok(other.cloned())
    }

    /// Waits until a server is ready. Fails if all servers fail, unless `waits_for_ready`, and if the channel is
    /// closed.
    pub(crate) async fn ready(&self, waits_for_ready: bool) -> Result<Arc<Subchannel>, ConnectError> {
        let mut states = self.reports.states.subscribe();
        loop {
            match self.next() {
                _ if self.waiting.is_closed() => return Err(ConnectError::new("the channel is closed")),
                Ok(Some(subchannel)) => return Ok(subchannel),
                Err(failure) if !waits_for_ready => return Err(failure),
                _ => {}
            }
            let _ = states.changed().await;
        }
    }

    /// A subchannel for a call, which waits for it if none is ready.
    pub(crate) async fn pick(
        &self,
        waits_for_ready: bool,
        deadline: Option<Instant>,
    ) -> Result<Arc<Subchannel>, Failure> {
        if let Ok(Some(subchannel)) = self.next() {
            return Ok(subchannel);
        }
        let _place = match self.waiting.try_acquire() {
            Err(TryAcquireError::NoPermits) => {
                return Err(untouched(Status::resource_exhausted("too many calls wait in this channel")).into());
            }
            place => place,
        };
        let ready = Box::pin(self.ready(waits_for_ready));
        let ready = match deadline {
            None => ready.await,
            Some(deadline) => timeout_at(deadline, ready).await.map_err(|_| late())?,
        };
        ready.map_err(|failure| Status::from(failure).into())
    }

    /// Resolves at first use and when a connection has ended or failed.
    async fn resolve(self: Arc<Self>, target: Arc<Target>, settings: Arc<Settings>) {
        let mut backoff = ConnectBackoff::new(&settings);
        loop {
            self.reports.resolving.notified().await;
            let pause = match target.resolve(settings.connect_timeout).await {
                Ok(servers) => {
                    backoff.reset();
                    self.set_servers(servers, &target, &settings);
                    backoff.first
                }
                Err(failure) => {
                    self.write().failure = Some(ConnectError::unreachable(&target.authority, failure));
                    self.reports.resolving.notify_one();
                    backoff.pause()
                }
            };
            self.reports.states.send_replace(());
            sleep(pause).await;
        }
    }

    fn set_servers(
        &self,
        found: impl IntoIterator<Item = ServerAddress>,
        target: &Arc<Target>,
        settings: &Arc<Settings>,
    ) {
        let mut servers = self.write();
        if self.waiting.is_closed() {
            return;
        }
        let Servers { current, leaving, ended, .. } = &mut *servers;
        // Servers in use come first: if there are too many, others are left out.
        let is_used = |server: &ServerAddress| current.iter().any(|(used, _)| used == server);
        let (used, new): (Vec<_>, Vec<_>) = found.into_iter().partition(is_used);
        let mut wanted: Vec<ServerAddress> = Vec::new();
        for server in used.into_iter().chain(new) {
            if wanted.len() < settings.servers_max.max(1) && !wanted.contains(&server) {
                wanted.push(server);
            }
        }
        leaving.extend(current.extract_if(.., |(server, _)| !wanted.contains(server)).map(|(_, gone)| gone));
        leaving.retain(|gone| {
            gone.close();
            let has_ended = gone.has_ended();
            *ended = if has_ended { ended.plus(gone.traffic()) } else { *ended };
            !has_ended
        });
        wanted.retain(|server| !current.iter().any(|(used, _)| used == server));
        for server in wanted {
            for _ in 0..settings.connections.max(1) {
                let place = (server.clone(), Arc::clone(&self.reports));
                current.push((server.clone(), connection::spawn(target, settings, Some(place))));
            }
        }
    }
}
