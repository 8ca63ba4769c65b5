//! `quire.Operator` over gRPC: messages in, calls of the handle, messages out.

use std::{ops::RangeInclusive, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use quire_rpc::{
    Request, Response, Status, Stream,
    server::{Client, OpenConnection},
};
use tokio::{sync::watch, time::MissedTickBehavior};

use self::wire::{
    BackupChunk, BackupRequest, CutConnectionReply, CutConnectionRequest, HistoryReply, HistoryRequest,
    ListConnectionsReply, ListConnectionsRequest, ReloadReply, ReloadRequest, WatchRequest, operator_server::Operator,
};
use crate::{
    figures::{Commits, Figures, Level, Levels, MethodFigures, MethodPoint, Point, Purchases, Reason, ServiceHealth},
    operate::{Operate, Reloaded, SAMPLE_INTERVAL},
};

/// The messages and services of `proto/operator.proto`.
pub mod wire {
    quire_rpc::include_proto!("quire");
}

/// Bounds of `interval_ms`.
const INTERVAL_MS: RangeInclusive<u32> = 1000..=3_600_000;
/// Connections in a reply: by default, and at most.
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1000;

type Out<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The service for a server's operators.
#[derive(Clone, Debug)]
pub struct OperatorService {
    operate: Operate,
}

impl OperatorService {
    /// Serves `operate`; the server authorizes callers.
    pub fn new(operate: Operate) -> Self {
        Self { operate }
    }
}

impl Operator for OperatorService {
    type WatchStream = Out<wire::Figures>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let interval = match request.into_inner().interval_ms {
            0 => SAMPLE_INTERVAL,
            asked if INTERVAL_MS.contains(&asked) => Duration::from_millis(asked.into()),
            asked => {
                let (least, most) = (INTERVAL_MS.start(), INTERVAL_MS.end());
                let message = format!("interval_ms is {asked}: send a number from {least} to {most}, or 0 for {least}");
                return Err(Status::invalid_argument(message));
            }
        };
        let samples = samples(self.operate.newest(), self.operate.ending(), interval);
        Ok(Response::new(Box::pin(samples)))
    }

    async fn history(&self, request: Request<HistoryRequest>) -> Result<Response<HistoryReply>, Status> {
        let points = self.operate.history();
        let most = match request.into_inner().points {
            0 => points.len(),
            asked => usize::try_from(asked).unwrap_or(usize::MAX),
        };
        let newest = &points[points.len().saturating_sub(most)..];
        Ok(Response::new(HistoryReply { points: newest.iter().map(|point| (&**point).into()).collect() }))
    }

    async fn list_connections(
        &self,
        request: Request<ListConnectionsRequest>,
    ) -> Result<Response<ListConnectionsReply>, Status> {
        let size = match usize::try_from(request.into_inner().page_size).unwrap_or(usize::MAX) {
            0 => PAGE_DEFAULT,
            asked if asked <= PAGE_MAX => asked,
            asked => {
                return Err(Status::invalid_argument(format!("page_size is {asked}: send at most {PAGE_MAX}")));
            }
        };
        let open = self.operate.connections();
        let total = count(open.len());
        let connections = open.into_iter().take(size).map(Into::into).collect();
        Ok(Response::new(ListConnectionsReply { connections, total }))
    }

    async fn cut_connection(
        &self,
        request: Request<CutConnectionRequest>,
    ) -> Result<Response<CutConnectionReply>, Status> {
        let operator = request.client().to_string();
        let id = request.into_inner().id;
        let success = self.operate.cut(id, &operator);
        let message = if success { format!("connection {id} is cut") } else { format!("no connection {id} is open") };
        Ok(Response::new(CutConnectionReply { success, message }))
    }

    async fn reload(&self, request: Request<ReloadRequest>) -> Result<Response<ReloadReply>, Status> {
        let done = self.operate.reload(&request.client().to_string()).await;
        let Reloaded { applied, waiting } = done.map_err(|error| Status::failed_precondition(error.to_string()))?;
        Ok(Response::new(ReloadReply { applied, waiting }))
    }

    type BackupStream = Out<BackupChunk>;

    async fn backup(&self, request: Request<BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let made = self.operate.backup(request.client().clone()).await;
        let pieces = made.map_err(|error| Status::failed_precondition(error.to_string()))?;
        let pieces = pieces.map(|piece| match piece {
            Ok(data) => Ok(BackupChunk { data, last: false }),
            Err(error) => Err(Status::internal(format!("cannot read the backup: {error}"))),
        });
        // An error ends the stream before it.
        let end = stream::iter([Ok(BackupChunk { data: Bytes::new(), last: true })]);
        Ok(Response::new(Box::pin(pieces.chain(end))))
    }
}

/// Samples at the interval; one that the client has no room for is replaced by the next.
fn samples(
    mut newest: watch::Receiver<Arc<Figures>>,
    ending: watch::Receiver<bool>,
    interval: Duration,
) -> impl Stream<Item = Result<wire::Figures, Status>> {
    newest.mark_changed();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stream::unfold((newest, ending, ticks), move |(mut newest, mut ending, mut ticks)| async move {
        let next = async {
            // At the interval of the samples themselves, their own time decides.
            if interval > SAMPLE_INTERVAL {
                ticks.tick().await;
            }
            loop {
                newest.changed().await.ok()?;
                let sample = newest.borrow_and_update();
                if sample.time_ms > 0 {
                    return Some(wire::Figures::from(&**sample));
                }
            }
        };
        let sample = tokio::select! {
            sample = next => sample?,
            _ = ending.wait_for(|is_ending| *is_ending) => return None,
        };
        Some((Ok(sample), (newest, ending, ticks)))
    })
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn all<'a, T, W: From<&'a T>>(items: &'a [T]) -> Vec<W> {
    items.iter().map(W::from).collect()
}

impl From<&Figures> for wire::Figures {
    fn from(figures: &Figures) -> Self {
        let calls = figures.calls;
        Self {
            time_ms: figures.time_ms,
            uptime_ms: milliseconds(figures.uptime),
            purchases: Some((&figures.purchases).into()),
            calls: Some(wire::Calls { total: calls.total, per_second: calls.per_second, in_flight: calls.in_flight }),
            refusals: all(&figures.refusals),
            errors: all(&figures.errors),
            methods: all(&figures.methods),
            commits: Some(figures.commits.into()),
            levels: Some(figures.levels.into()),
            certificate_expires_seconds: figures.certificate_expires_seconds,
            backup_age_seconds: figures.backup_age.map(|age| age.as_secs()),
            services: all(&figures.services),
            healthy: figures.is_healthy,
        }
    }
}

impl From<&Purchases> for wire::Purchases {
    fn from(purchases: &Purchases) -> Self {
        let Purchases { acknowledged, durable, per_second, outcomes } = purchases;
        Self { acknowledged: *acknowledged, durable: *durable, per_second: *per_second, outcomes: all(outcomes) }
    }
}

impl From<&Reason> for wire::Reason {
    fn from(reason: &Reason) -> Self {
        Self { name: reason.name.as_ref().to_owned(), count: reason.count }
    }
}

impl From<&MethodFigures> for wire::MethodFigures {
    fn from(method: &MethodFigures) -> Self {
        let MethodFigures { path, calls, failed, times } = method;
        Self {
            path: path.as_ref().to_owned(),
            calls: *calls,
            failed: *failed,
            p50_seconds: times.p50,
            p99_seconds: times.p99,
            p999_seconds: times.p999,
        }
    }
}

impl From<Commits> for wire::Commits {
    fn from(commits: Commits) -> Self {
        let Commits { per_second, entries, times } = commits;
        Self { per_second, entries, p50_seconds: times.p50, p99_seconds: times.p99 }
    }
}

impl From<Levels> for wire::Levels {
    fn from(levels: Levels) -> Self {
        let level = |level: Option<Level>| level.map(|Level { used, limit }| wire::Level { used, limit });
        Self {
            memory_bytes: level(levels.memory_bytes),
            disk_bytes: level(levels.disk_bytes),
            connections: level(levels.connections),
            descriptors: level(levels.descriptors),
            queue: level(levels.queue),
        }
    }
}

impl From<&ServiceHealth> for wire::ServiceHealth {
    fn from(service: &ServiceHealth) -> Self {
        let ServiceHealth { name, is_healthy, trouble } = service;
        Self { name: (*name).to_owned(), healthy: *is_healthy, trouble: trouble.clone().unwrap_or_default() }
    }
}

impl From<&Point> for wire::Point {
    #[expect(clippy::cast_precision_loss, reason = "levels for a line in a chart")]
    fn from(point: &Point) -> Self {
        Self {
            time_ms: point.time_ms,
            purchases_per_second: point.purchases_per_second,
            calls_per_second: point.calls_per_second,
            refused_per_second: point.refused_per_second,
            failed_per_second: point.failed_per_second,
            p50_seconds: point.times.map(|times| times.p50),
            p99_seconds: point.times.map(|times| times.p99),
            p999_seconds: point.times.map(|times| times.p999),
            commits_per_second: point.commits_per_second,
            commit_entries: point.commit_entries,
            commit_seconds: point.commit_seconds,
            memory_bytes: point.memory_bytes as f64,
            connections: point.connections as f64,
            methods: all(&point.methods),
        }
    }
}

impl From<&MethodPoint> for wire::MethodPoint {
    fn from(method: &MethodPoint) -> Self {
        let MethodPoint { path, calls_per_second, times } = method;
        Self {
            path: path.as_ref().to_owned(),
            calls_per_second: *calls_per_second,
            p50_seconds: times.p50,
            p99_seconds: times.p99,
            p999_seconds: times.p999,
        }
    }
}

impl From<OpenConnection> for wire::OpenConnection {
    fn from(open: OpenConnection) -> Self {
        let credential = match &open.client {
            Client::Credential(name) => name.as_ref().to_owned(),
            Client::Address(_) | Client::Unknown => String::new(),
        };
        Self {
            id: open.id,
            address: open.address.map(|address| address.to_string()).unwrap_or_default(),
            credential,
            user_agent: open.user_agent,
            calls_in_flight: count(open.calls_in_flight),
            bytes_read: open.bytes_read,
            bytes_written: open.bytes_written,
            buffered_bytes: count(open.buffered_bytes),
            age_ms: milliseconds(open.age),
            idle_ms: milliseconds(open.idle),
        }
    }
}
