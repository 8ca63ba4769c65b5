//! Group commit (`DeWitt` et al., 1984) for any store: callers put jobs into a bounded queue, a worker commits all
//! waiting jobs as one batch, and each caller gets its answer after the commit. Meanwhile the next batch collects,
//! without a timer.
//!
//! After a failed commit the store's contents are unknown: the callers of that batch get [`Failure::OutcomeUnknown`],
//! queued jobs are refused, and none is accepted until the store has been reopened and read back.
//!
//! In a backlog a job is refused at once if its turn would come too late at the last measured rate, and abandoned jobs
//! are dropped without being run ([`Admission`]).
//!
//! Callers use a [`Group`]; a [`Worker`] opens a store and commits the [`Batches`] that it takes. Each worker has a
//! thread of its own, so a store may block; an asynchronous driver runs there, on the worker's own runtime. Several
//! workers with [`GroupLimits::batch`] at 1 act as a classic connection pool.
//!
//! A store that keeps files checks before it acknowledges that their paths still lead to them ([`FileIdentity`]).
//!
//! Must not know what a job does, nor how a store keeps it.
//!
//! ```
//! use std::{convert::Infallible, time::Duration};
//!
//! use commit::{Batches, Group, GroupLimits, Worker};
//!
//! /// Adds numbers.
//! struct Sum(u64);
//!
//! impl Worker for Sum {
//!     type Job = u64;
//!     type Answer = u64;
//!     type Error = Infallible;
//!
//!     fn run(&mut self, batches: &mut Batches<'_, Self>) -> Result<(), Infallible> {
//!         batches.recover(|| Ok::<_, Infallible>(()))?;
//!         while let Some(batch) = batches.next(false) {
//!             for pending in batch {
//!                 self.0 += pending.job;
//!                 batches.answer(pending, self.0);
//!             }
//!         }
//!         Ok(())
//!     }
//!
//!     fn failed(&mut self, _: &Infallible, _: u32) {}
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let group = Group::start("sum", GroupLimits::default(), [Sum(40)])?;
//! assert_eq!(group.commit(2).await, Ok(42));
//! assert!(group.close(Duration::from_secs(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admission;
mod answers;
mod file_identity;
mod group;
mod queue;
#[cfg(test)]
mod simulation;
mod waits;

pub use admission::{Admission, RETRY_AFTER_MIN};
pub use answers::{Failure, Pending};
pub use file_identity::{FileIdentity, Moved};
pub use group::{Batch, Batches, Group, GroupLimits, OnTaken, Worker, backoff};
pub use waits::{measure_waits, waited};
