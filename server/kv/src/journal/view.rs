//! Views of the disk as it was at one moment, read while writes go on. A view holds no file: it reads through the disk
//! that the journal has open, so a journal that failed can close its files however many views there are.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use super::disk::{Disk, Moment};
use crate::{
    entry::{Entry, Key, Version},
    fault::Fault,
};

/// The most views at once. What a view shows is not removed from disk, so views cost disk space.
const VIEWS_MAX: usize = 4;

/// The disk that the journal has open.
#[derive(Debug, Default)]
pub(super) struct OpenDisk {
    state: Mutex<State>,
    views: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    disk: Option<Disk>,
    /// The number of the opening, to tell one from the next.
    number: u64,
}

impl OpenDisk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the disk; returns when no view reads through the one before.
    pub(super) fn set(&self, disk: Option<Disk>) {
        let mut state = self.lock();
        state.number += 1;
        state.disk = disk;
    }
}

/// The disk as it was at one moment.
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

    /// Shows the entries after a key, in the order of their keys, until `visit` returns false.
    pub(crate) fn visit(&self, after: Option<&[u8]>, visit: impl FnMut(Key, Entry) -> bool) -> Result<(), Fault> {
        self.read(|disk| disk.visit(&self.moment, after, visit))
    }

    /// The greatest version used up to the moment.
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
