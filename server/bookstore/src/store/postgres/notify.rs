//! Notifies the other servers of this one's commits.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tokio_postgres::Statement;

use super::{
    errors::PostgresError,
    link::{Link, timed},
    schema::ANNOUNCEMENT_CHANNEL,
    visible::Visible,
};

/// Least time between two notifications; commits meanwhile go into one.
const PAUSE: Duration = Duration::from_millis(20);

const NOTIFY: &str = "SELECT pg_notify($1::text, payload) FROM unnest($2::text[]) AS payload";

/// Sends commits through a follower's connection.
#[derive(Clone)]
pub(super) struct Notifier {
    link: Arc<Link>,
    visible: Arc<Visible>,
    timeout: Duration,
    notify: Statement,
    pub(super) channel: Arc<str>,
}

impl Notifier {
    pub(super) async fn new(link: Arc<Link>, visible: Arc<Visible>, timeout: Duration) -> Result<Self, PostgresError> {
        let channel: String = link.client.query_one(ANNOUNCEMENT_CHANNEL, &[]).await?.try_get(0)?;
        let notify = link.client.prepare(NOTIFY).await?;
        Ok(Self { link, visible, timeout, notify, channel: channel.into() })
    }

    /// Runs until the connection fails. Each notification is a separate transaction after the commits: NOTIFY locks the
    /// whole database until its transaction ends.
    pub(super) async fn run(&self) -> PostgresError {
        loop {
            self.visible.committed.notified().await;
            let payloads = self.visible.take_announcement().payloads();
            let sent = async { Ok(self.link.client.execute(&self.notify, &[&&*self.channel, &payloads]).await?) };
            if let Err(error) = timed(self.timeout, sent).await {
                return error;
            }
            self.link.notices.changed.notify_one();
            sleep(PAUSE).await;
        }
    }
}
