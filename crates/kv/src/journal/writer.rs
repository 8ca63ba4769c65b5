//! The journal's thread. It alone writes to the table, so what it decides on holds until it is shown.
//!
//! After a failed batch no caller is told yes or no, and nothing is taken until the disk has been opened again, with a new
//! log, written to, and read back.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Shared,
    disk::{Disk, Record},
    queue::Job,
};
use crate::{
    entry::{Entry, Key, Version, entry_bytes},
    fault::Fault,
    table::Table,
    watch::EventKind,
    write::{Action, Effect, Outcome, Present},
};

/// Writes in one batch at the most.
const BATCH_JOBS_MAX: usize = 1024;
/// Bytes at which a batch takes no further write.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// How long to wait before the disk is opened again after a failure.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

type Reply = (oneshot::Sender<Result<Outcome, Fault>>, Result<Outcome, Fault>);

enum Change {
    Put(Entry),
    Remove(EventKind, Version),
}

/// What a batch's writes come to.
#[derive(Default)]
struct Batch {
    changes: Vec<(Key, Change)>,
    replies: Vec<Reply>,
    /// What keys have once the batch is shown, with their memory.
    after: HashMap<Key, (Present, Option<usize>)>,
    /// Room that was taken, to be given back if the batch fails.
    taken: Vec<(Option<usize>, usize)>,
}

pub(super) struct Writer {
    folder: PathBuf,
    table: Arc<Table>,
    shared: Arc<Shared>,
    /// Keys whose last write may or may not be on disk.
    doubtful: HashSet<Key>,
    /// Whether anything was written since the start.
    wrote: bool,
}

impl Writer {
    pub(super) fn new(folder: PathBuf, table: Arc<Table>, shared: Arc<Shared>) -> Self {
        Self { folder, table, shared, doubtful: HashSet::new(), wrote: false }
    }

    /// Works until the queue is closed and empty.
    pub(super) fn run(mut self, disk: Disk) {
        let mut disk = Some(disk);
        while let Some(open) = disk.take() {
            let worked = self.work(&open);
            self.shared.opened.set(None);
            let Err(error) = worked else { return };
            self.shared.failures.fetch_add(1, Relaxed);
            tracing::error!(%error, folder = %self.folder.display(), "the key-value journal failed; it takes nothing until it has been read back");
            self.shared.sound.send_replace(false);
            for job in self.shared.queue.suspend() {
                answer((job.reply, Err(Fault::Unavailable("recovering from a disk that failed"))));
            }
            // Its files must be closed before they are opened again.
            drop(open);
            disk = self.reopen();
        }
    }

    /// `None` when the end came first.
    fn reopen(&mut self) -> Option<Disk> {
        let mut told = false;
        loop {
            if self.shared.queue.closed_within(REOPEN_PAUSE) {
                return None;
            }
            match Disk::open(&self.folder).and_then(|disk| Ok(self.read_back(&disk).map(|()| disk)?)) {
                Ok(disk) => {
                    tracing::info!(folder = %self.folder.display(), "the key-value journal was read back and takes writes again");
                    self.shared.opened.set(Some(disk.clone()));
                    self.shared.queue.resume();
                    self.shared.sound.send_replace(true);
                    return Some(disk);
                }
                Err(error) if !told => {
                    tracing::warn!(%error, "the key-value journal cannot be opened yet; trying again");
                    told = true;
                }
                Err(_) => {}
            }
        }
    }

    /// Finds out that the disk can be written and what it holds of the keys in doubt.
    fn read_back(&mut self, disk: &Disk) -> Result<(), fjall::Error> {
        disk.commit(std::iter::empty(), self.table.version())?;
        let mut found = Vec::new();
        for key in &self.doubtful {
            found.push((Key::clone(key), disk.get(key)?));
        }
        for (key, entry) in found {
            let shown = self.table.read(&key, |entry| entry.version);
            match entry {
                Some(entry) if shown == Some(entry.version) => {}
                Some(entry) => self.table.found(key, entry),
                None => self.table.remove_decided(key, EventKind::Deleted, self.table.next_version()),
            }
        }
        self.doubtful.clear();
        Ok(())
    }

    /// Batch after batch. An error means that the disk cannot be trusted any more.
    fn work(&mut self, disk: &Disk) -> Result<(), fjall::Error> {
        let mut jobs = Vec::new();
        while self.shared.queue.take(&mut jobs, BATCH_JOBS_MAX, BATCH_BYTES_MAX) {
            let mut batch = Batch::default();
            for job in jobs.drain(..) {
                self.decide(&mut batch, job);
            }
            self.commit(disk, batch)?;
        }
        // A batch with another one behind it is known to have been acknowledged, should it be damaged.
        if self.wrote {
            disk.commit(std::iter::empty(), self.table.version())?;
        }
        Ok(())
    }

    fn decide(&self, batch: &mut Batch, job: Job) {
        // A caller that gave up before the work began is not charged for it.
        if job.reply.is_closed() {
            return;
        }
        let outcome = self.decided(batch, &job);
        batch.replies.push((job.reply, outcome));
    }

    fn decided(&self, batch: &mut Batch, job: &Job) -> Result<Outcome, Fault> {
        let (present, bytes) = batch.after.get(&job.key).copied().unwrap_or_else(|| self.table.present(&job.key));
        match (job.action.decide(present)?, job.action.value()) {
            (Effect::Put, Some((value, expires_at_ms))) => {
                let room = entry_bytes(&job.key, value);
                self.table.usage.take(bytes, room)?;
                batch.taken.push((bytes, room));
                let version = self.table.next_version();
                batch.after.insert(Key::clone(&job.key), (Present::Live(version), Some(room)));
                let entry = Entry { value: value.clone(), version, expires_at_ms };
                batch.changes.push((Key::clone(&job.key), Change::Put(entry)));
                Ok(Outcome::Put(version))
            }
            (Effect::Remove, _) => {
                let expired = matches!(job.action, Action::Expire { .. });
                let kind = if expired { EventKind::Expired } else { EventKind::Deleted };
                batch.after.insert(Key::clone(&job.key), (Present::Absent, None));
                batch.changes.push((Key::clone(&job.key), Change::Remove(kind, self.table.next_version())));
                Ok(Outcome::Removed)
            }
            _ => Ok(Outcome::Nothing),
        }
    }

    fn commit(&mut self, disk: &Disk, batch: Batch) -> Result<(), fjall::Error> {
        let records = batch.changes.iter().map(|(key, change)| match change {
            Change::Put(entry) => Record::Put(key, entry),
            Change::Remove(..) => Record::Remove(key),
        });
        if !batch.changes.is_empty()
            && let Err(error) = disk.commit(records, self.table.version())
        {
            for (old, new) in batch.taken.into_iter().rev() {
                self.table.usage.undo(old, new);
            }
            self.doubtful.extend(batch.changes.into_iter().map(|(key, _)| key));
            // Also those that were refused: what they were refused for may not be there.
            for (reply, _) in batch.replies {
                answer((reply, Err(Fault::OutcomeUnknown)));
            }
            return Err(error);
        }
        self.wrote |= !batch.changes.is_empty();
        for (key, change) in batch.changes {
            match change {
                Change::Put(entry) => self.table.put_decided(key, entry),
                Change::Remove(kind, version) => self.table.remove_decided(key, kind, version),
            }
        }
        batch.replies.into_iter().for_each(answer);
        Ok(())
    }
}

fn answer((reply, outcome): Reply) {
    // A caller that has gone away needs no answer.
    let _ = reply.send(outcome);
}
