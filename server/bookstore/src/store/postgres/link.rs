//! Connections to the primary: every host is tried at once, and the first that accepts writes is used.

use std::{
    collections::HashSet,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Error, Notification, Socket, error::Severity, tls::TlsStream,
};

use super::{errors::PostgresError, target::Target};

/// The mean pause between two tries to connect.
const RECONNECT: Duration = Duration::from_millis(250);

/// A timer that is late by this was held up with the whole process, not by other processes on its core.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// Handler of other sessions' notifications.
type OnNotification = Box<dyn Fn(&Notification) + Send + Sync>;

/// The server's messages besides answers.
#[derive(Default)]
pub(super) struct Notices {
    /// It warned since [`Notices::durably`] began.
    warned: AtomicBool,
    /// Another session sent a notification, or the connection ended.
    pub(super) changed: Notify,
    /// The server's process, once known; its own notifications are ignored.
    pub(super) process: AtomicI32,
    pub(super) on_notification: OnceLock<OnNotification>,
}

impl Notices {
    /// Runs statements that commit. If the server warned, the commit may have ended its wait for the replicas, as one
    /// that is cancelled does: it holds on this server, and may be lost with it.
    pub(super) async fn durably<T>(
        &self,
        statements: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, PostgresError> {
        self.warned.store(false, Relaxed);
        let done = statements.await?;
        if self.warned.load(Relaxed) { Err(PostgresError::NotDurable) } else { Ok(done) }
    }
}

/// A connection with its I/O task.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) notices: Arc<Notices>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Sends no cancellation: a running COMMIT continues.
        self.task.abort();
    }
}

/// Initial settings of every session, instead of the cluster's and the user's defaults.
///
/// A server-side statement timeout would end a COMMIT's wait for its replicas, and report the COMMIT as done; so there
/// is none, and the client watches the time. A plan made while a table was empty would scan the whole table for each
/// batch after it has grown, so plans use indexes, in the session's own process.
const BEGIN: &str = "\
    SET statement_timeout = 0; \
    SET default_transaction_isolation = 'read committed'; \
    SET client_min_messages = warning; \
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; \
    SET max_parallel_workers_per_gather = 0; \
    SELECT set_config('quire.ledger', 'on', false), set_config('synchronous_commit', \
        CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)";

/// Connects to the host that takes writes. While one is silent the others are asked again, because one of them may
/// become the primary.
pub(super) async fn connect(target: &Target) -> Result<Link, PostgresError> {
    let ask = |index: usize, pause: Duration| async move {
        sleep(pause).await;
        (index, connect_to(target, &target.hosts[index]).await)
    };
    let mut asked: FuturesUnordered<_> = (0..target.hosts.len()).map(|index| ask(index, Duration::ZERO)).collect();
    let (mut refused, mut worst) = (HashSet::new(), None::<PostgresError>);
    while let Some((index, answer)) = asked.next().await {
        match answer {
            Ok(link) => {
                target.pulse.beat();
                return Ok(link);
            }
            // A host's refusal is more informative than an unreachable host.
            Err(error) if worst.as_ref().is_none_or(|worst| error.is_refusal() && !worst.is_crowded()) => {
                worst = Some(error);
            }
            Err(_) => {}
        }
        refused.insert(index);
        if refused.len() == target.hosts.len() {
            break;
        }
        asked.push(ask(index, reconnect_pause()));
    }
    Err(worst.unwrap_or(PostgresError::Silent(target.timeout)))
}

/// Between two tries to connect. It differs so that many servers do not come back at once.
pub(super) fn reconnect_pause() -> Duration {
    RECONNECT.mul_f64(0.5 + f64::from(fastrand::u16(..)) / f64::from(u16::MAX))
}

async fn connect_to(target: &Target, host: &Config) -> Result<Link, PostgresError> {
    let opened = async {
        let (client, connection) = host.connect(target.tls.clone()).await?;
        let notices = Arc::new(Notices::default());
        let task = tokio::spawn(drive(connection, Arc::clone(&notices)));
        let link = Link { client, notices, task };
        link.client.batch_execute(BEGIN).await?;
        Ok(link)
    };
    timed(target.timeout, opened).await
}

async fn drive<T: TlsStream + Unpin>(mut connection: Connection<Socket, T>, notices: Arc<Notices>) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            AsyncMessage::Notice(notice)
                if notice.parsed_severity().is_none_or(|severity| severity == Severity::Warning) =>
            {
                notices.warned.store(true, Relaxed);
                tracing::warn!(notice = notice.message(), "the database warns");
            }
            AsyncMessage::Notification(note) if note.process_id() != notices.process.load(Relaxed) => {
                if let Some(on_notification) = notices.on_notification.get() {
                    on_notification(&note);
                }
                notices.changed.notify_one();
            }
            _ => {}
        }
    }
    // Wakes the waiters, which then notice that the connection ended.
    notices.changed.notify_one();
}

/// Waits for at most `longest`. Does not cancel the request.
pub(super) async fn timed<T>(
    longest: Duration,
    answer: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    let mut answer = pin!(answer);
    loop {
        let begun = Instant::now();
        if let Ok(answered) = timeout(longest, &mut answer).await {
            return answered;
        }
        // If this process stood still itself, the other one may not have been silent.
        if begun.elapsed() < longest + STOOD_STILL {
            return Err(PostgresError::Silent(longest));
        }
    }
}
