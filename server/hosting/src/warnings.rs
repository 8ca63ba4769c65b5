//! Log lines about limits that clients reach. Clients can cause any number of refusals, so each limit is logged at most
//! once in an interval.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use quire_rpc::server::Client;

/// Least time between two lines of a kind about the same limit.
const INTERVAL: Duration = Duration::from_secs(10);

/// Time of the last line, and the number left out since.
type Last = (Instant, u64);

/// The limits logged so far; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<HashMap<(&'static str, bool), Last>>>);

impl Warnings {
    /// Logs that a client was refused because of the setting `limit`.
    pub fn refused(&self, limit: &'static str, client: &Client) {
        if let Some(left_out) = self.due((limit, false)) {
            tracing::warn!(%client, limit, left_out, "a client is refused: it has its share of a limit, or all is taken");
        }
    }

    /// Logs that a client lost a part of `limit` to another client.
    pub fn made_room(&self, limit: &'static str, client: &Client) {
        if let Some(left_out) = self.due((limit, true)) {
            tracing::warn!(%client, limit, left_out, "a limit is reached: the client that can best spare it makes room");
        }
    }

    /// Number of lines of the kind that were left out, if one may be written; otherwise counts this one.
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
