//! The store behind the group commit. Only its thread writes to the table, so its decisions still hold when they are
//! published.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use commit::{Batch, Batches, OnTaken, Worker};

use crate::{
    entry::{Entry, Key, Version, entry_bytes},
    fault::Fault,
    journal::{
        disk::{Disk, DiskError, Files, Record},
        view::OpenDisk,
    },
    metrics::Histograms,
    table::Table,
    watch::EventKind,
    write::{Action, Effect, Outcome, Present},
};

/// A caller's write.
pub(super) struct Write {
    pub(super) key: Key,
    pub(super) action: Action,
    pub(super) deadline: Option<Instant>,
}

enum Change {
    Put(Entry),
    Remove(EventKind, Version),
}

/// The decisions of a batch.
#[derive(Default)]
struct Decided {
    changes: Vec<(Key, Change)>,
    outcomes: Vec<Result<Outcome, Fault>>,
    /// State of keys once the batch is published, with the memory of their entries.
    after: HashMap<Key, (Present, Option<usize>)>,
    /// Reserved memory, freed if the batch fails.
    taken: Vec<(Option<usize>, usize)>,
}

pub(super) struct Writer {
    folder: PathBuf,
    table: Arc<Table>,
    /// Gives views access to the open disk.
    shown: Arc<OpenDisk>,
    failures: Arc<Failures>,
    histograms: Histograms,
    /// Those of the disk that was opened last.
    files: Files,
    /// The disk opened and read at the start.
    first: Option<Disk>,
    /// Keys whose last write may or may not be on disk.
    doubtful: HashSet<Key>,
    /// True if anything was written since the start.
    wrote: bool,
}

impl Writer {
    pub(super) fn new(
        folder: PathBuf,
        table: Arc<Table>,
        shown: Arc<OpenDisk>,
        failures: Arc<Failures>,
        histograms: Histograms,
        disk: Disk,
        files: Files,
    ) -> Self {
        Self {
            folder,
            table,
            shown,
            failures,
            histograms,
            files,
            first: Some(disk),
            doubtful: HashSet::new(),
            wrote: false,
        }
    }
}

impl Worker for Writer {
    type Job = Write;
    type Answer = Result<Outcome, Fault>;
    type Error = DiskError;

    fn run(&mut self, batches: &mut Batches<'_, Self>) -> Result<(), DiskError> {
        let disk = if let Some(disk) = self.first.take() {
            disk
        } else {
            // Another folder at this path, or one without what was acknowledged last, is not gone on with.
            self.files.check()?;
            let disk = Disk::open(&self.folder)?;
            self.files = Files::of(&self.folder)?;
            disk
        };
        let mut open = OpenWriter { writer: self, disk: &disk };
        let served = open.serve(batches);
        if served.is_err() {
            batches.suspend();
        }
        // The disk's files must be closed before they are reopened.
        self.shown.set(None);
        served
    }

    fn failed(&mut self, error: &DiskError, failures: u32) {
        self.failures.add(error.to_string(), failures == 1);
        match failures {
            1 => {
                tracing::error!(%error, folder = %self.folder.display(), "the key-value journal failed; it takes nothing until it has been read back");
            }
            2 => tracing::warn!(%error, "the key-value journal cannot be opened yet; trying again"),
            _ => {}
        }
    }

    fn bytes(Write { key, action, .. }: &Write) -> usize {
        key.len() + action.value().map_or(0, |(value, _)| value.bytes().len())
    }

    fn deadline(write: &Write) -> Option<Instant> {
        write.deadline
    }

    fn on_taken(&self) -> OnTaken {
        let times = self.histograms.queue.clone();
        Box::new(move |queued| times.observe(queued.as_secs_f64()))
    }
}

struct OpenWriter<'a> {
    writer: &'a mut Writer,
    disk: &'a Disk,
}

impl OpenWriter<'_> {
    fn serve(&mut self, batches: &mut Batches<'_, Writer>) -> Result<(), DiskError> {
        batches.recover(|| self.read_back())?;
        while let Some(batch) = batches.next(false) {
            if batch.is_empty() {
                self.writer.files.check()?;
            } else {
                self.commit(batch, batches)?;
            }
        }
        self.close()
    }

    /// Checks that the disk is writable, and reads the keys in doubt.
    fn read_back(&mut self) -> Result<(), DiskError> {
        let Writer { table, doubtful, .. } = self.writer;
        self.disk.commit(std::iter::empty(), table.version())?;
        let mut found = Vec::new();
        for key in &*doubtful {
            found.push((Key::clone(key), self.disk.get(key)?));
        }
        for (key, entry) in found {
            let shown = table.read(&key, |entry| entry.version);
            match entry {
                Some(entry) if shown == Some(entry.version) => {}
                Some(entry) => table.found(key, entry),
                None => table.remove_decided(key, EventKind::Deleted, table.next_version()),
            }
        }
        doubtful.clear();
        self.writer.failures.over();
        self.writer.shown.set(Some(self.disk.clone()));
        tracing::info!(folder = %self.writer.folder.display(), "the key-value journal was read back and takes writes again");
        Ok(())
    }

    fn commit(&mut self, batch: Batch<Writer>, batches: &mut Batches<'_, Writer>) -> Result<(), DiskError> {
        let mut decided = Decided::default();
        for pending in &batch {
            let outcome = self.decide(&mut decided, &pending.job);
            decided.outcomes.push(outcome);
        }
        // If the batch fails, refused writes have no answer either: the entry that caused the refusal may not be on
        // disk.
        let outcomes = self.write(decided)?;
        for (pending, outcome) in batch.into_iter().zip(outcomes) {
            batches.answer(pending, outcome);
        }
        Ok(())
    }

    fn decide(&self, batch: &mut Decided, Write { key, action, .. }: &Write) -> Result<Outcome, Fault> {
        let table = &self.writer.table;
        let (present, bytes) = batch.after.get(key).copied().unwrap_or_else(|| table.present(key));
        match (action.decide(present)?, action.value()) {
            (Effect::Put, Some((value, expires_at_ms))) => {
                let room = entry_bytes(key, value);
                table.usage.take(bytes, room)?;
                batch.taken.push((bytes, room));
                let version = table.next_version();
                batch.after.insert(Key::clone(key), (Present::Live(version), Some(room)));
                let entry = Entry { value: value.clone(), version, expires_at_ms };
                batch.changes.push((Key::clone(key), Change::Put(entry)));
                Ok(Outcome::Put(version))
            }
            (Effect::Remove, _) => {
                let expired = matches!(action, Action::Expire { .. });
                let kind = if expired { EventKind::Expired } else { EventKind::Deleted };
                batch.after.insert(Key::clone(key), (Present::Absent, None));
                batch.changes.push((Key::clone(key), Change::Remove(kind, table.next_version())));
                Ok(Outcome::Removed)
            }
            _ => Ok(Outcome::Nothing),
        }
    }

    /// Writes the decisions to disk and publishes them to readers.
    fn write(&mut self, decided: Decided) -> Result<Vec<Result<Outcome, Fault>>, DiskError> {
        let Writer { table, doubtful, wrote, files, histograms, .. } = self.writer;
        let records = decided.changes.iter().map(|(key, change)| match change {
            Change::Put(entry) => Record::Put(key, entry),
            Change::Remove(..) => Record::Remove(key),
        });
        let mut written = Ok(());
        if !decided.changes.is_empty() {
            let begun_at = Instant::now();
            written = self.disk.commit(records, table.version());
            histograms.commit.observe(begun_at.elapsed().as_secs_f64());
        }
        if let Err(error) = written.map_err(DiskError::from).and_then(|()| Ok(files.check()?)) {
            for (old, new) in decided.taken.into_iter().rev() {
                table.usage.undo(old, new);
            }
            doubtful.extend(decided.changes.into_iter().map(|(key, _)| key));
            return Err(error);
        }
        if !decided.changes.is_empty() {
            *wrote = true;
            histograms.batch.observe(f64::from(u32::try_from(decided.changes.len()).unwrap_or(u32::MAX)));
        }
        for (key, change) in decided.changes {
            match change {
                Change::Put(entry) => table.put_decided(key, entry),
                Change::Remove(kind, version) => table.remove_decided(key, kind, version),
            }
        }
        Ok(decided.outcomes)
    }

    /// Appends an empty batch after the last write, so that damage to that write is not mistaken for a torn end.
    fn close(&mut self) -> Result<(), DiskError> {
        self.writer.files.check()?;
        if self.writer.wrote {
            self.disk.commit(std::iter::empty(), self.writer.table.version())?;
        }
        Ok(())
    }
}

/// Failures up to now.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: AtomicU64,
    /// Reason of the last one, until the journal was read back.
    reason: Mutex<Option<String>>,
}

impl Failures {
    /// Notes a failure, and counts it if it is new.
    pub(super) fn add(&self, reason: String, is_new: bool) {
        self.count.fetch_add(is_new.into(), Relaxed);
        self.set(Some(reason));
    }

    /// Notes that the journal accepts writes again.
    pub(super) fn over(&self) {
        self.set(None);
    }

    fn set(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Reason why no writes are accepted; `None` while they are.
    pub(super) fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
