//! Replaces the journal in a build without the feature `journal`: a store on disk is refused.

use std::{
    convert::Infallible,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    entry::{Entry, Key, Version},
    fault::Fault,
    metrics::Histograms,
    settings::Limits,
    table::Table,
    write::{Action, Outcome},
};

/// This build has no store on disk.
#[derive(Debug, thiserror::Error)]
#[error(
    "this build keeps key-value entries in memory only: `make run` leaves the journal out to start sooner. \
     Build with `cargo build --release -p server`, or set `kv.durability` to 'memory'"
)]
pub struct OpenError;

impl OpenError {
    /// False: nothing is opened.
    pub const fn is_in_use(&self) -> bool {
        false
    }
}

/// The callers' handle; never exists.
#[derive(Debug)]
pub(crate) struct Journal(Infallible);

impl Journal {
    pub(crate) fn open(_: &Path, _: Arc<Table>, _: &Limits, _: Histograms) -> Result<Self, OpenError> {
        Err(OpenError)
    }

    #[expect(clippy::unused_async, reason = "as the journal has it")]
    pub(crate) async fn write(&self, _: Key, _: Action, _: Option<Instant>) -> Result<Outcome, Fault> {
        match self.0 {}
    }

    pub(crate) fn view(&self) -> Result<View, Fault> {
        match self.0 {}
    }

    pub(crate) fn queued(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn failures(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        match self.0 {}
    }

    pub(crate) fn healthy(&self) -> watch::Receiver<bool> {
        match self.0 {}
    }

    pub(crate) fn close(&self, _: Duration) -> bool {
        match self.0 {}
    }
}

/// A snapshot of the disk; never exists.
#[derive(Debug)]
pub(crate) struct View(Infallible);

impl View {
    pub(crate) fn visit(&self, _: Option<&[u8]>, _: impl FnMut(Key, Entry) -> bool) -> Result<(), Fault> {
        match self.0 {}
    }

    pub(crate) fn last_version(&self) -> Result<Version, Fault> {
        match self.0 {}
    }
}

/// A change to write.
pub(crate) enum Record<'a> {
    Put(&'a Key, &'a Entry),
}

/// A store on disk; never exists.
#[derive(Debug)]
pub(crate) struct Disk(Infallible);

impl Disk {
    pub(crate) fn open(_: &Path) -> Result<Self, OpenError> {
        Err(OpenError)
    }

    pub(crate) fn commit<'a>(&self, _: impl Iterator<Item = Record<'a>>, _: Version) -> Result<(), OpenError> {
        match self.0 {}
    }
}
