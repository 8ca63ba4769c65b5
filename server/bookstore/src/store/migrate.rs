//! Copies a file of `SQLite` into a database of `PostgreSQL`: books, and the log with its numbers and keys. One
//! transaction, so that an aborted copy leaves nothing.

use std::path::{Path, PathBuf};

use super::{
    postgres::{Copier, DatabaseError},
    sqlite::{CopyError, FreezeError, Frozen, OpenError},
    sums::Sums,
};
use crate::settings::Settings;

/// Result of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrated {
    /// The database was empty and now holds this.
    Copied(Sums),
    /// The database held this already.
    There(Sums),
}

/// Reason why nothing was copied.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The file does not exist or is no store.
    #[error(transparent)]
    Source(#[from] CopyError),
    /// The file is no store.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An open reservation is not in the log.
    #[error("the open reservations of {0} differ from its log: nothing was copied; run `quire verify`")]
    Reservations(PathBuf),
    /// A program has the file open.
    #[error("{0} is in use: stop the servers that sell from it, and run this again")]
    Selling(PathBuf),
    /// The file cannot be read.
    #[error("cannot read {path}: {reason}; nothing was copied")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The database refused the write.
    #[error("cannot write the database: {0}; nothing was copied")]
    Write(String),
    /// The database has other contents.
    #[error("the database holds {there}, and the file {here}; empty the database's tables or name another one")]
    Filled {
        /// In the database.
        there: Sums,
        /// In the file.
        here: Sums,
    },
    /// The copy differs from the file.
    #[error("the database would hold {there}, and the file holds {here}; nothing was copied")]
    Differs {
        /// In the database.
        there: Sums,
        /// In the file.
        here: Sums,
    },
}

/// Contents of a file.
#[derive(Debug)]
pub struct Found {
    /// In the file.
    pub here: Sums,
    /// The file's schema.
    pub schema: i64,
    /// True if a program has the file open.
    pub is_in_use: bool,
}

/// Plan of a migration.
#[derive(Debug)]
pub struct Plan {
    /// In the file.
    pub here: Sums,
    /// The file's schema.
    pub schema: i64,
    /// In the database; `None` if it has no tables.
    pub there: Option<Sums>,
    /// Reasons why it cannot be done.
    pub problems: Vec<MigrateError>,
}

/// Reads a file. Changes nothing; servers may go on selling.
pub fn look(source: &Path, settings: &Settings) -> Result<Found, MigrateError> {
    // It keeps servers out until it is dropped here.
    let (file, is_in_use) = Frozen::look(source, settings).map_err(|error| frozen(error, source))?;
    let read = |reason| MigrateError::Read { path: source.to_owned(), reason };
    Ok(Found { here: file.sums().map_err(read)?, schema: file.schema().map_err(read)?, is_in_use })
}

/// Reads what [`migrate`] would copy, and what is in its way. Changes nothing; servers may go on selling.
pub fn plan_migration(source: &Path, url: &str, settings: &Settings) -> Result<Plan, MigrateError> {
    let Found { here, schema, is_in_use } = look(source, settings)?;
    let mut problems = Vec::new();
    if is_in_use {
        problems.push(MigrateError::Selling(source.to_owned()));
    }
    let there = Copier::look(url, settings).unwrap_or_else(|error| {
        problems.push(error.into());
        None
    });
    if let Some(there) = there.filter(|there| !there.is_empty() && *there != here) {
        problems.push(MigrateError::Filled { there, here });
    }
    Ok(Plan { here, schema, there, problems })
}

fn frozen(error: FreezeError, source: &Path) -> MigrateError {
    match error {
        FreezeError::Absent(error) => error.into(),
        FreezeError::Open(error) => error.into(),
        FreezeError::InUse => MigrateError::Selling(source.to_owned()),
    }
}

/// Copies the file at `source` into the database at `url`. `progress` gets the rows done and all rows.
pub fn migrate(
    source: &Path,
    url: &str,
    settings: &Settings,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Migrated, MigrateError> {
    let file = Frozen::open(source).map_err(|error| frozen(error, source))?;
    let read = |reason| MigrateError::Read { path: source.to_owned(), reason };
    let here = file.sums().map_err(read)?;
    let copier = Copier::begin(url, settings)?;
    let there = copier.sums().map_err(MigrateError::Write)?;
    if there == here {
        return Ok(Migrated::There(there));
    }
    if !there.is_empty() {
        return Err(MigrateError::Filled { there, here });
    }
    let (mut done, all) = (0, (here.books + here.entries).unsigned_abs());
    let mut step = || {
        done += 1;
        if done % 1024 == 0 || done == all {
            progress(done, all);
        }
    };
    let mut refused = None;
    let mut books = copier.books().map_err(MigrateError::Write)?;
    let copied = file.each_book(|book| {
        step();
        books.add_book(&book).map_err(|reason| refused = Some(reason)).is_ok()
    });
    copied.map_err(read)?;
    books.finish().map_err(|reason| MigrateError::Write(refused.take().unwrap_or(reason)))?;
    let mut entries = copier.entries().map_err(MigrateError::Write)?;
    let copied = file.each_entry(|entry| {
        step();
        entries.add_entry(&entry).map_err(|reason| refused = Some(reason)).is_ok()
    });
    copied.map_err(read)?;
    entries.finish().map_err(|reason| MigrateError::Write(refused.take().unwrap_or(reason)))?;
    let open = file.open_holds().map_err(read)?;
    let held = copier.hold(&open).map_err(MigrateError::Write)?;
    if usize::try_from(held) != Ok(open.len()) {
        return Err(MigrateError::Reservations(source.to_owned()));
    }
    let there = copier.sums().map_err(MigrateError::Write)?;
    if there != here {
        return Err(MigrateError::Differs { there, here });
    }
    copier.commit(here.last_number).map_err(MigrateError::Write)?;
    Ok(Migrated::Copied(there))
}
