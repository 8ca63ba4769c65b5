//! How a connection keeps the file durable: checkpoints, and the repair after a failure.
//! Must not know what is written; see [`mend`] for what a failed fsync loses.

use std::sync::{PoisonError, atomic::Ordering::Relaxed};

use super::{
    super::interface::Broken,
    mend,
    reason::reason,
    state::{Shared, State},
    write::Writer,
};

/// When the WAL is copied back into the file.
pub(super) struct Checkpoints {
    /// The WAL's length in pages at which it is due.
    due_at: i64,
}

impl Checkpoints {
    pub(super) fn new() -> Self {
        Self { due_at: mend::WAL_PAGES }
    }

    /// Copies the WAL back if it has grown long enough; callers have their answers by then.
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
                // Purchases go on in the WAL, for as long as there is room.
                self.due_at = pages + mend::WAL_PAGES / 4;
                tracing::warn!(reason = reason(&error), "the WAL was not copied back into the file");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Before the file is closed: the WAL is as durable as the file, so emptying it only makes the next start shorter. After
/// a checkpoint that failed the WAL stays, and the next start copies all of it.
pub(super) fn empty_log(shared: &Shared, writer: &mut Writer<'_>) {
    if !shared.lost_pages.load(Relaxed)
        && let Err(error) = writer.empty_log()
    {
        shared.lost_pages.store(true, Relaxed);
        tracing::warn!(reason = reason(&error), "the WAL was not emptied; the next start does it");
    }
}

/// After a failure: makes durable what the file shows, and finds out that it can be written.
pub(super) fn repair(shared: &Shared, writer: &mut Writer<'_>) -> Result<(), Broken> {
    let _turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
    writer.begin()?;
    mend::rewrite_log(&shared.path).map_err(|reason| Broken(format!("its WAL cannot be written: {reason}")))?;
    // Also ends what is left in the WAL of a transaction that failed, so that it cannot come back.
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

/// After a failure: finds out what the file holds.
pub(super) fn read_back(shared: &Shared, writer: &mut Writer<'_>) -> rusqlite::Result<()> {
    writer.begin_read()?;
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    *state = State::load(writer, &shared.shelf, &shared.settings)?;
    shared.last_number.send_replace(state.last_number);
    drop(state);
    writer.rollback()
}
