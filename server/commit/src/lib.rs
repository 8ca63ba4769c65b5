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
//! A [`Store`] opens, an [`Opened`] commits, and a [`Group`] is what callers use. Each worker has a thread of its own,
//! so a store may block; an asynchronous driver runs there, on the worker's own runtime. Several workers with
//! [`Limits::batch`] at 1 act as a classic connection pool.
//!
//! A store that keeps files looks before it acknowledges whether they are where it opened them ([`Place`]).
//!
//! Must not know what a job does, nor how a store keeps it.
//!
//! ```
//! use std::{convert::Infallible, time::Duration};
//!
//! use commit::{Answers, Batch, Group, Limits, Opened, Session, Store};
//!
//! /// Adds numbers.
//! struct Sum(u64);
//!
//! impl Store for Sum {
//!     type Job = u64;
//!     type Answer = u64;
//!     type Error = Infallible;
//!
//!     fn open(&mut self, session: &mut Session<'_, Self>) -> Result<(), Infallible> {
//!         session.serve(self)
//!     }
//!
//!     fn failed(&mut self, _: &Infallible, _: u32) {}
//! }
//!
//! impl Opened<Sum> for Sum {
//!     fn read_back(&mut self) -> Result<(), Infallible> {
//!         Ok(())
//!     }
//!
//!     fn commit(&mut self, batch: Batch<Sum>, answers: &mut Answers<u64>) -> Result<(), Infallible> {
//!         for pending in batch {
//!             self.0 += pending.job;
//!             answers.add(pending, self.0);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let group = Group::start("sum", Limits::default(), [Sum(40)])?;
//! assert_eq!(group.commit(2).await, Ok(42));
//! assert!(group.close(Duration::from_secs(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admission;
mod dispatcher;
mod failure;
mod group;
mod pending;
mod place;
mod queue;
#[cfg(test)]
mod simulation;
mod store;

pub use admission::{Admission, RETRY_AFTER_MIN};
pub use failure::Failure;
pub use group::Group;
pub use pending::{Answers, Pending};
pub use place::{Moved, Place};
pub use store::{Batch, Limits, Opened, Queued, Session, Store, backoff};
