//! Notifies the other servers of this one's commits.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tokio_postgres::Statement;

use super::{
    link::{Link, timed},
    schema::NEWS_CHANNEL,
    shown::Shown,
    trouble::Trouble,
};

/// Least time between two notifications; commits meanwhile go into one.
const PAUSE: Duration = Duration::from_millis(20);

const TELL: &str = "SELECT pg_notify($1::text, payload) FROM unnest($2::text[]) AS payload";

/// Sends commits through a follower's connection.
#[derive(Clone)]
pub(super) struct Teller {
    link: Arc<Link>,
    shown: Arc<Shown>,
    timeout: Duration,
    tell: Statement,
    pub(super) channel: Arc<str>,
}

impl Teller {
    pub(super) async fn new(link: Arc<Link>, shown: Arc<Shown>, timeout: Duration) -> Result<Self, Trouble> {
        let channel: String = link.client.query_one(NEWS_CHANNEL, &[]).await?.try_get(0)?;
        let tell = link.client.prepare(TELL).await?;
        Ok(Self { link, shown, timeout, tell, channel: channel.into() })
    }

    /// Runs until the connection fails. Each notification is a separate transaction after the commits: NOTIFY locks the
    /// whole database until its transaction ends.
    pub(super) async fn run(&self) -> Trouble {
        loop {
            self.shown.committed.notified().await;
            let payloads = self.shown.take_news().payloads();
            let told = async { Ok(self.link.client.execute(&self.tell, &[&&*self.channel, &payloads]).await?) };
            if let Err(trouble) = timed(self.timeout, told).await {
                return trouble;
            }
            self.link.said.changed.notify_one();
            sleep(PAUSE).await;
        }
    }
}
