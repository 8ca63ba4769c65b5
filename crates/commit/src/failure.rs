//! Why a caller gets no answer from the store.

use std::time::Duration;

/// What a caller is told in place of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// As many jobs wait as may; nothing was done.
    #[error("as many jobs wait as may: nothing was done")]
    Full,
    /// More jobs come than the store commits: this one would be committed after its deadline, or would wait for too long;
    /// nothing was done.
    #[error("more jobs come than the store commits: nothing was done, another try is worth it in {retry_after:?}")]
    Overloaded {
        /// When another try is worth it.
        retry_after: Duration,
    },
    /// The deadline passed before work on the job began; nothing was done.
    #[error("the deadline passed before the job was begun: nothing was done")]
    Late,
    /// The store failed and has not been read back yet; nothing was done.
    #[error("the store is being read back after a failure: nothing was done")]
    Recovering,
    /// The group takes no more jobs; nothing was done.
    #[error("the store is closing: nothing was done")]
    Closing,
    /// The store failed while it committed; reading it back tells whether the job was done.
    #[error("the store failed while it committed: the outcome is unknown")]
    OutcomeUnknown,
}
