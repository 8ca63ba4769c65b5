//! Durability of the file: checkpoints, and repair after a failed fsync.
//!
//! After a failed fsync Linux marks the pages to be written as clean: they show the program's data, no later fsync
//! writes them, and a power cut loses them (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC
//! 2020). So all possibly lost data is rewritten before anything is built on it:
//!
//! - the WAL byte by byte, with [`rewrite_log`], at each start and after each failure;
//! - the database file by `VACUUM`, which puts each of its pages into the WAL, after a checkpoint whose fsync failed.
//!   Checkpointing again is not enough: `SQLite` does not sync the pages of a checkpoint that a reader cut short,
//!   and does not copy them again.
//!
//! So the ledger makes the checkpoints: `SQLite` does not report failed automatic ones.

use std::sync::{PoisonError, atomic::Ordering::Relaxed};

use rusqlite::ffi;

use super::{
    super::interface::Broken,
    errors::reason,
    log::{check::bring_up, numbers::NUMBER_MAX},
    state::{Shared, State},
    wal::{WAL_PAGES, rewrite_log},
    writer::Writer,
};

/// True if pages may be lost permanently: later fsyncs will not write them.
pub(crate) fn lost_pages(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC))
}

/// Bound of the WAL during an audit: 256 MiB.
const AUDIT_PAGES_MAX: i64 = 16 * WAL_PAGES;

/// Schedule of checkpoints.
pub(super) struct Checkpoints {
    /// WAL length in pages at which the next is due.
    pub(super) due_at: i64,
    /// WAL length in pages at which the audit ends, whose snapshot keeps the WAL from restarting.
    pub(super) audit_max: i64,
}

impl Checkpoints {
    pub(super) fn new() -> Self {
        Self { due_at: WAL_PAGES, audit_max: AUDIT_PAGES_MAX }
    }

    /// Checkpoints if the WAL is long enough; callers are already answered.
    pub(super) fn make_if_due(&mut self, shared: &Shared, writer: &Writer) -> rusqlite::Result<()> {
        let pages = writer.log_pages()?;
        if pages < self.due_at || shared.lost_pages.load(Relaxed) {
            return Ok(());
        }
        self.due_at = WAL_PAGES;
        match writer.checkpoint() {
            Err(error) if lost_pages(&error) => {
                shared.lost_pages.store(true, Relaxed);
                Err(error)
            }
            Err(error) => {
                // Purchases continue in the WAL while there is space.
                self.due_at = pages + WAL_PAGES / 4;
                tracing::warn!(reason = reason(&error), "the WAL was not copied back into the file");
                Ok(())
            }
            Ok(false) => {
                self.due_at = pages + WAL_PAGES / 4;
                if pages >= self.audit_max && shared.audit.stop() {
                    tracing::warn!(
                        pages,
                        "stopped comparing the log with its head, because the WAL grew; run `quire verify`"
                    );
                }
                Ok(())
            }
            Ok(true) => Ok(()),
        }
    }
}

/// Empties the WAL before closing, only to shorten the next start, as the WAL is as durable as the file. After a failed
/// checkpoint the WAL stays, and the next start copies all of it.
pub(super) fn empty_log(shared: &Shared, writer: &Writer) {
    if !shared.lost_pages.load(Relaxed)
        && let Err(error) = writer.empty_log()
    {
        shared.lost_pages.store(true, Relaxed);
        tracing::warn!(reason = reason(&error), "the WAL was not emptied; the next start does it");
    }
}

/// After a failure: makes the file's visible contents durable, and checks that it is writable.
pub(super) fn repair(shared: &Shared, writer: &Writer) -> Result<(), Broken> {
    let _turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
    writer.begin()?;
    rewrite_log(&shared.path).map_err(|reason| Broken(format!("its WAL cannot be written: {reason}")))?;
    // Also overwrites the rest of a failed transaction in the WAL, so that it cannot come back.
    writer.probe()?;
    writer.commit()?;
    if shared.lost_pages.load(Relaxed) {
        tracing::warn!(path = %shared.path.display(), "the disk may have lost a part of the file; writing all of it again");
        writer.rewrite_database()?;
        writer.checkpoint()?;
        shared.lost_pages.store(false, Relaxed);
    }
    Ok(())
}

/// After a failure: rereads the file's state, checks that the log still holds what was acknowledged, and writes its head.
pub(super) fn read_back(shared: &Shared, writer: &Writer) -> Result<(), Broken> {
    let _turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    writer.begin()?;
    reread(shared, writer, &mut state)?;
    while state.tree.has_new_gaps() && state.last_number <= NUMBER_MAX {
        // On disk before a head counts them; others may write before the lock is held again.
        state.tree.write_gaps(writer.file())?;
        writer.commit()?;
        state.tree.gaps_committed();
        writer.begin()?;
        reread(shared, writer, &mut state)?;
    }
    if state.last_number <= NUMBER_MAX {
        let mut head = shared.head.lock().unwrap_or_else(PoisonError::into_inner);
        bring_up(&mut head, writer.file(), &shared.path, &state.tree)?;
    }
    Ok(writer.rollback()?)
}

/// Rereads the file's state in the open transaction, if the log holds what was acknowledged.
fn reread(shared: &Shared, writer: &Writer, state: &mut State) -> Result<(), Broken> {
    let (file, known) = (writer.file(), state.tree.frontier());
    let tree = state.tree.again(file)?;
    if tree.root_at(file, known.size())? != Some(known.root()) {
        let reason = "its log does not hold all that was acknowledged; restore the files from a backup";
        return Err(Broken(reason.to_owned()));
    }
    *state = State::load(writer, &shared.shelf, &shared.settings, &shared.clock, shared.longest_ms, tree)?;
    shared.last_number.send_replace(state.last_number);
    Ok(())
}
