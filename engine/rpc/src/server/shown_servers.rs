//! Servers that the channelz service shows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::call::Shared;

/// Servers until they are dropped; clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct ShownServers(Arc<Mutex<Vec<Weak<Shared>>>>);

impl ShownServers {
    pub(crate) fn add(&self, server: &Arc<Shared>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(server));
    }

    /// The servers by their ids.
    pub(crate) fn list(&self) -> BTreeMap<i64, Arc<Shared>> {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|server| server.strong_count() > 0);
        let open = servers.iter().filter_map(Weak::upgrade);
        open.filter_map(|server| Some((server.shown.as_ref()?.id, server))).collect()
    }
}
