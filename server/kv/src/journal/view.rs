//! Snapshots of the disk, read while writes continue. A view holds no file: it reads through the journal's open disk,
//! so a failed journal can close its files regardless of views.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use super::disk::{Disk, Moment};
use crate::{
    entry::{Entry, Key, Version},
    fault::Fault,
};

/// Most views at once. Data in a view is not removed from disk, so views cost disk space.
const VIEWS_MAX: usize = 4;

/// The journal's open disk.
#[derive(Debug, Default)]
pub(super) struct OpenDisk {
    state: Mutex<State>,
    views: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    disk: Option<Disk>,
    /// Number of the opening, to distinguish reopenings.
    number: u64,
}

impl OpenDisk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the disk; returns when no view is reading the old one.
    pub(super) fn set(&self, disk: Option<Disk>) {
        let mut state = self.lock();
        state.number += 1;
        state.disk = disk;
    }
}

/// A snapshot of the disk.
#[derive(Debug)]
pub(crate) struct View {
    opened: Arc<OpenDisk>,
    number: u64,
    moment: Moment,
}

impl View {
    pub(super) fn of(opened: &Arc<OpenDisk>) -> Result<Self, Fault> {
        let state = opened.lock();
        let disk = state.disk.as_ref().ok_or(CLOSED)?;
        if opened.views.fetch_update(SeqCst, SeqCst, |views| (views < VIEWS_MAX).then_some(views + 1)).is_err() {
            return Err(Fault::Unavailable("taking as many snapshots as it can"));
        }
        Ok(Self { opened: Arc::clone(opened), number: state.number, moment: disk.moment() })
    }

    /// Visits the entries after a key, in key order, until `visit` returns false.
    pub(crate) fn visit(&self, after: Option<&[u8]>, visit: impl FnMut(Key, Entry) -> bool) -> Result<(), Fault> {
        self.read(|disk| disk.visit(&self.moment, after, visit))
    }

    /// The greatest version in the snapshot.
    pub(crate) fn last_version(&self) -> Result<Version, Fault> {
        self.read(|disk| disk.version_at(&self.moment))
    }

    fn read<R>(&self, read: impl FnOnce(&Disk) -> Result<R, fjall::Error>) -> Result<R, Fault> {
        let state = self.opened.lock();
        let disk = state.disk.as_ref().filter(|_| state.number == self.number).ok_or(CLOSED)?;
        read(disk).map_err(|error| {
            tracing::error!(%error, "a snapshot of the key-value store cannot be read");
            Fault::Unavailable("unable to read its files for a snapshot")
        })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.opened.views.fetch_sub(1, SeqCst);
    }
}

/// The disk of the view has been closed.
const CLOSED: Fault = Fault::Unavailable("recovering from a disk that failed, or stopping");
