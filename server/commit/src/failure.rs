//! Reasons why a caller gets no answer from the store.

use std::time::Duration;

/// Failure of a job, returned instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The queue is full; the job was not run.
    #[error("as many jobs wait as may: nothing was done")]
    Full,
    /// Overload: the job would be committed after its deadline or wait too long; it was not run.
    #[error("more jobs come than the store commits: nothing was done, another try is worth it in {retry_after:?}")]
    Overloaded {
        /// Delay after which to retry.
        retry_after: Duration,
    },
    /// The deadline passed before work on the job began; the job was not run.
    #[error("the deadline passed before the job was begun: nothing was done")]
    Late,
    /// The store failed and has not been read back yet; the job was not run.
    #[error("the store is being read back after a failure: nothing was done")]
    Recovering,
    /// The group is closing; the job was not run.
    #[error("the store is closing: nothing was done")]
    Closing,
    /// The store failed during the commit; reading it back shows whether the job was done.
    #[error("the store failed while it committed: the outcome is unknown")]
    OutcomeUnknown,
}
