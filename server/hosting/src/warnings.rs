//! Lines of the log about limits that clients reach: clients cause as many refusals as they like, so a limit is named at most
//! once in a while. Must not know what is limited.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use quire_rpc::server::Client;

/// Between two lines of a kind about the same limit.
const INTERVAL: Duration = Duration::from_secs(10);

/// When a line was written, and how often none was since.
type Last = (Instant, u64);

/// The limits that were logged of late; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<HashMap<(&'static str, bool), Last>>>);

impl Warnings {
    /// A client was refused what the setting `limit` bounds.
    pub fn refused(&self, limit: &'static str, client: &Client) {
        if let Some(left_out) = self.due((limit, false)) {
            tracing::warn!(%client, limit, left_out, "a client is refused: it has its share of a limit, or all is taken");
        }
    }

    /// A client lost some of what the setting `limit` bounds to another one.
    pub fn made_room(&self, limit: &'static str, client: &Client) {
        if let Some(left_out) = self.due((limit, true)) {
            tracing::warn!(%client, limit, left_out, "a limit is reached: the client that can best spare it makes room");
        }
    }

    /// How many lines of the kind were left out, if there may be one again.
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
