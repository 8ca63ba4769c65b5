//! How the worker keeps the file durable: checkpoints that tell of their failures, and what is done after a failure.
//! Must not know what is written; see [`store::rewrite_log`] for what a failed fsync loses.

use std::sync::{PoisonError, atomic::Ordering::Relaxed};

use super::{State, worker::Worker};
use crate::store;

impl Worker<'_, '_> {
    /// Copies the WAL back into the file when it has grown long enough; callers have their answers by then.
    pub(super) fn checkpoint_if_due(&mut self) -> rusqlite::Result<()> {
        let pages = self.writer.log_pages()?;
        if pages < self.checkpoint_at || self.shared.lost_pages.load(Relaxed) {
            return Ok(());
        }
        self.checkpoint_at = store::WAL_PAGES;
        match self.writer.checkpoint() {
            Err(error) if store::lost_pages(&error) => {
                self.shared.lost_pages.store(true, Relaxed);
                Err(error)
            }
            Err(error) => {
                // Purchases go on in the WAL, for as long as there is room.
                self.checkpoint_at = pages + store::WAL_PAGES / 4;
                tracing::warn!(reason = store::reason(&error), "the WAL was not copied back into the file");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// After a failure: makes durable what the file shows, and finds out that it can be written.
    pub(super) fn mend(&mut self) -> Result<(), String> {
        let sqlite = |error: rusqlite::Error| store::reason(&error);
        let shared = self.shared;
        let _turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.writer.begin().map_err(sqlite)?;
        store::rewrite_log(&shared.path).map_err(|reason| format!("its WAL cannot be written: {reason}"))?;
        // Also ends what is left in the WAL of a transaction that failed, so that it cannot come back.
        self.writer.probe().and_then(|()| self.writer.commit()).map_err(sqlite)?;
        if shared.lost_pages.load(Relaxed) {
            tracing::warn!(path = %shared.path.display(), "the disk may have lost a part of the file; writing all of it again");
            self.writer.rewrite_database().and_then(|()| self.writer.checkpoint()).map_err(sqlite)?;
            shared.lost_pages.store(false, Relaxed);
        }
        Ok(())
    }

    /// After a failure: finds out what the file holds.
    pub(super) fn read_back(&mut self) -> rusqlite::Result<()> {
        self.writer.begin_read()?;
        let shared = self.shared;
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State::load(&mut self.writer, &shared.shelf, &shared.settings)?;
        shared.last_number.send_replace(state.last_number);
        drop(state);
        self.writer.rollback()
    }
}
