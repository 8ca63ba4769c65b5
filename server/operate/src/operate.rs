//! The handle that transports and pages use.

use std::{
    cmp::Reverse,
    collections::VecDeque,
    fmt,
    io::{self, Read},
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use hosting::{Client, Error, Share, Shares};
use quire_rpc::server::{ConnectionRegistry, OpenConnection};
use tokio::{
    sync::{Semaphore, watch},
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior},
};

use crate::{
    figures::{Figures, Point, ServiceHealth},
    sampler::{Moment, Sampler},
};

/// Time between two samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Points that are kept: an hour.
const POINTS_MAX: usize = 3600;

/// Backups that wait, are being made, are read, or are verified; each but the last kind has a file in the data folder
/// until its reader is gone. One client alone may have three of them.
const BACKUPS_MAX: usize = 4;

/// Error before the first sample.
const STARTING: &str = "the server is still starting; try again after a pause";

/// Pieces of a backup's file, in their order.
pub type BackupPieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// A backup that is being made.
pub type Making = Pin<Box<dyn Future<Output = Result<BackupPieces, Error>> + Send>>;

/// Makes a backup of the data folder.
pub type MakeBackup = Box<dyn Fn() -> Result<BackupPieces, Error> + Send + Sync>;

/// Reads a backup's file to its end and verifies its checksums; returns a description of its contents.
pub type VerifyBackup = Box<dyn Fn(&mut dyn Read) -> Result<String, Error> + Send + Sync>;

/// Settings that a reading found changed.
#[derive(Clone, Debug, Default)]
pub struct Reloaded {
    /// Those that hold from now on, as name=value.
    pub applied: Vec<String>,
    /// Names of those that hold from the next start on.
    pub waiting: Vec<String>,
}

/// Reads again what a SIGHUP reads; an error is that the settings are invalid.
pub type Reload = Box<dyn Fn() -> Result<Reloaded, String> + Send + Sync>;

/// The parts of a server that figures, backups and settings are made from. All of them may block.
pub struct Sources {
    /// The page `/metrics`.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// The health of each service, and of the server itself if it has trouble of its own.
    pub health: Box<dyn Fn() -> Vec<ServiceHealth> + Send + Sync>,
    /// Makes a backup.
    pub backup: MakeBackup,
    /// Verifies a backup.
    pub verify: VerifyBackup,
    /// Reads settings again.
    pub reload: Reload,
}

/// The operators' view of a server; clones are the same.
#[derive(Clone)]
pub struct Operate(Arc<Inner>);

struct Inner {
    connections: ConnectionRegistry,
    sources: OnceLock<Sources>,
    newest: watch::Sender<Arc<Figures>>,
    points: Mutex<VecDeque<Arc<Point>>>,
    /// One backup at a time is made.
    making: Arc<Semaphore>,
    /// Backups that wait, are being made, are read, or are verified, by client.
    backups: Shares,
    /// True once watches must end.
    ending: watch::Sender<bool>,
}

impl Operate {
    /// A view of the server whose connections are in `connections`, without figures until it [runs](Self::run).
    pub fn new(connections: ConnectionRegistry) -> Self {
        Self(Arc::new(Inner {
            connections,
            sources: OnceLock::new(),
            newest: watch::Sender::new(Arc::default()),
            points: Mutex::default(),
            making: Arc::new(Semaphore::new(1)),
            backups: Shares::new(BACKUPS_MAX),
            ending: watch::Sender::new(false),
        }))
    }

    /// The registry that the server lists its connections in.
    pub fn registry(&self) -> &ConnectionRegistry {
        &self.0.connections
    }

    /// The newest sample, which changes once a second; all zero before the first.
    pub fn newest(&self) -> watch::Receiver<Arc<Figures>> {
        self.0.newest.subscribe()
    }

    /// The points of the last hour, oldest first.
    pub fn history(&self) -> Vec<Arc<Point>> {
        self.0.points.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The open connections over every protocol, those that moved most bytes first.
    pub fn connections(&self) -> Vec<OpenConnection> {
        let mut open = self.0.connections.list();
        open.sort_by_key(|open| Reverse(open.bytes_read.saturating_add(open.bytes_written)));
        open
    }

    /// Ends a connection at once, with its calls; false if none has this id. `operator` is a name for the log.
    pub fn cut(&self, id: u64, operator: &str) -> bool {
        let was_open = self.0.connections.cut(id);
        tracing::warn!(connection = id, operator, was_open, "an operator cuts a connection");
        was_open
    }

    /// Reads again what a SIGHUP reads. `operator` is a name for the log.
    pub async fn reload(&self, operator: &str) -> Result<Reloaded, Error> {
        tracing::warn!(operator, "an operator has the settings read again");
        let inner = Arc::clone(&self.0);
        let reloaded = spawn_blocking(move || inner.sources.get().map(|sources| (sources.reload)()));
        Ok(reloaded.await?.ok_or(STARTING)??)
    }

    /// Makes a backup of the data folder for this client: the file that `quire backup` writes. One is made at a time;
    /// others wait for it, or are read meanwhile.
    pub async fn backup(&self, client: Client) -> Result<BackupPieces, Error> {
        if self.0.sources.get().is_none() {
            return Err(STARTING.into());
        }
        let share = self.share(client)?;
        let permit = Arc::clone(&self.0.making).acquire_owned().await?;
        let inner = Arc::clone(&self.0);
        // Cannot be aborted: a backup whose caller is gone keeps its permits until its file is made, and so removed.
        let made = spawn_blocking(move || {
            let pieces = inner.sources.get().map(|sources| (sources.backup)());
            drop(permit);
            Some((pieces?, share))
        });
        let (pieces, share) = made.await?.ok_or(STARTING)?;
        // Given back when the stream is dropped.
        Ok(Box::pin(pieces?.inspect(move |_| _ = &share)))
    }

    /// Verifies the file of a backup for this client, whose reads may block; returns a description of its contents.
    pub async fn verify(&self, client: Client, mut file: impl Read + Send + 'static) -> Result<String, Error> {
        let share = self.share(client)?;
        let inner = Arc::clone(&self.0);
        let verified = spawn_blocking(move || {
            let verified = inner.sources.get().map(|sources| (sources.verify)(&mut file));
            drop(share);
            verified
        });
        verified.await?.ok_or(STARTING)?
    }

    fn share(&self, client: Client) -> Result<Share, Error> {
        self.0.backups.take(client).ok_or_else(|| {
            let text = format!(
                "at most {BACKUPS_MAX} backups are made, read or verified at once, of which one client has three: read one to \
                 its end, or cancel it"
            );
            text.into()
        })
    }

    /// Makes a sample of these sources once a second, until `stopped` completes; then it ends all watches.
    pub async fn run(self, sources: Sources, stopped: impl Future<Output = ()>) {
        // An error means that it runs already, with the same sources.
        let _ = self.0.sources.set(sources);
        tokio::select! {
            () = self.sample() => {}
            () = stopped => {}
        }
        self.0.ending.send_replace(true);
    }

    /// Turns true when watches must end.
    pub(crate) fn ending(&self) -> watch::Receiver<bool> {
        self.0.ending.subscribe()
    }

    async fn sample(&self) {
        let (mut sampler, start) = (Sampler::default(), Instant::now());
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let inner = Arc::clone(&self.0);
            let read = spawn_blocking(move || {
                let sources = inner.sources.get()?;
                Some(((sources.metrics)(), (sources.health)()))
            });
            // An error means that a source panicked, which is on standard error.
            let Ok(Some((page, services))) = read.await else { continue };
            let moment = Moment { since_start: start.elapsed(), time_ms: now_ms(), services };
            let (figures, point) = sampler.add(&page, moment);
            if let Some(point) = point {
                let mut points = self.0.points.lock().unwrap_or_else(PoisonError::into_inner);
                if points.len() >= POINTS_MAX {
                    points.pop_front();
                }
                points.push_back(Arc::new(point));
            }
            self.0.newest.send_replace(Arc::new(figures));
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Operate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operate({:?})", self.0.connections)
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::mpsc};

    use futures_util::{FutureExt as _, stream};

    use super::*;

    fn operate(backup: MakeBackup) -> Operate {
        let operate = Operate::new(ConnectionRegistry::default());
        let verify: VerifyBackup = Box::new(|file| Ok(io::read_to_string(file)?));
        let (metrics, health) = (Box::new(String::new), Box::new(Vec::new));
        let sources = Sources { metrics, health, backup, verify, reload: Box::new(|| Ok(Reloaded::default())) };
        assert!(operate.0.sources.set(sources).is_ok());
        operate
    }

    fn pieces() -> BackupPieces {
        Box::pin(stream::iter([Ok(Bytes::from_static(b"a piece"))]))
    }

    fn client(name: &str) -> Client {
        Client::Credential(name.into())
    }

    #[tokio::test]
    async fn a_cancelled_backup_keeps_its_turn_until_its_file_is_made() {
        let (go_on, wait) = mpsc::channel();
        let wait = Mutex::new(wait);
        let operate = operate(Box::new(move || {
            wait.try_lock().map_err(|_| "two at once")?.recv()?;
            Ok(pieces())
        }));
        assert!(operate.backup(client("anna")).now_or_never().is_none(), "it is being made");
        assert_eq!(operate.0.making.available_permits(), 0, "its call is gone");
        let mut next = pin!(operate.backup(client("anna")));
        assert!(next.as_mut().now_or_never().is_none(), "it waits");
        go_on.send(()).expect("a maker");
        go_on.send(()).expect("a maker");
        assert_eq!(next.await.expect("a backup").count().await, 1);
    }

    #[tokio::test]
    async fn slow_readers_of_backups_leave_one_to_another_client() {
        let operate = operate(Box::new(|| Ok(pieces())));
        let mut slow = Vec::new();
        for _ in 0..BACKUPS_MAX - 1 {
            slow.push(operate.backup(client("anna")).await.expect("a backup"));
        }
        let refused = operate.backup(client("anna")).await.err().expect("a refusal").to_string();
        assert!(refused.contains("at most 4 backups are made, read or verified at once"), "{refused}");
        assert!(operate.verify(client("anna"), io::empty()).await.is_err(), "a share of its own counts too");
        let other = operate.backup(client("ben")).await.expect("a backup");
        assert!(operate.backup(client("cleo")).await.is_err(), "four are there");
        drop((slow, other));
        assert!(operate.backup(client("anna")).await.is_ok());
    }
}
