//! A bounded cache of results by task; equal tasks in flight are computed once.

use crate::{fault::Fault, task::Task};

/// Cached results.
///
/// Keys are hashed with a secret, because callers choose them.
#[derive(Debug)]
pub(crate) struct Cache(quick_cache::sync::Cache<Task, u8>);

impl Cache {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self(quick_cache::sync::Cache::new(entries_max))
    }

    pub(crate) fn get(&self, task: Task) -> Option<u8> {
        self.0.get(&task)
    }

    /// Returns the cached result, or that of an equal task in flight once it is ready, or else that of `compute`. If
    /// the computing caller gives up, a waiting one takes over.
    pub(crate) async fn get_or_compute(
        &self,
        task: Task,
        compute: impl Future<Output = Result<u8, Fault>>,
    ) -> Result<u8, Fault> {
        self.0.get_or_insert_async(&task, compute).await
    }
}
