//! Durability of the file: checkpoints, and repair after a failure.

use std::sync::{PoisonError, atomic::Ordering::Relaxed};

use super::{
    super::interface::Broken,
    mend,
    reason::reason,
    state::{Shared, State},
    write::Writer,
};

/// Schedule of checkpoints.
pub(super) struct Checkpoints {
    /// WAL length in pages at which the next is due.
    due_at: i64,
}

impl Checkpoints {
    pub(super) fn new() -> Self {
        Self { due_at: mend::WAL_PAGES }
    }

    /// Checkpoints if the WAL is long enough; callers are already answered.
    pub(super) fn make_if_due(&mut self, shared: &Shared, writer: &mut Writer<'_>) -> rusqlite::Result<()> {
        let pages = writer.log_pages()?;
        if pages < self.due_at || shared.lost_pages.load(Relaxed) {
            return Ok(());
        }
        self.due_at = mend::WAL_PAGES;
        match writer.checkpoint() {
            Err(error) if mend::lost_pages(&error) => {
                shared.lost_pages.store(true, Relaxed);
                Err(error)
            }
            Err(error) => {
                // Purchases continue in the WAL while there is space.
                self.due_at = pages + mend::WAL_PAGES / 4;
                tracing::warn!(reason = reason(&error), "the WAL was not copied back into the file");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Empties the WAL before closing, only to shorten the next start, as the WAL is as durable as the file. After a failed
/// checkpoint the WAL stays, and the next start copies all of it.
pub(super) fn empty_log(shared: &Shared, writer: &mut Writer<'_>) {
    if !shared.lost_pages.load(Relaxed)
        && let Err(error) = writer.empty_log()
    {
        shared.lost_pages.store(true, Relaxed);
        tracing::warn!(reason = reason(&error), "the WAL was not emptied; the next start does it");
    }
}

/// After a failure: makes the file's visible contents durable, and checks that it is writable.
pub(super) fn repair(shared: &Shared, writer: &mut Writer<'_>) -> Result<(), Broken> {
    let _turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
    writer.begin()?;
    mend::rewrite_log(&shared.path).map_err(|reason| Broken(format!("its WAL cannot be written: {reason}")))?;
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

/// After a failure: rereads the file's state.
pub(super) fn read_back(shared: &Shared, writer: &mut Writer<'_>) -> rusqlite::Result<()> {
    writer.begin_read()?;
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    *state = State::load(writer, &shared.shelf, &shared.settings)?;
    shared.last_number.send_replace(state.last_number);
    drop(state);
    writer.rollback()
}
