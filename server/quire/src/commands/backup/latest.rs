//! The time of the newest backup of a data folder.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

/// The file in the data folder whose time it is.
const FILE_NAME: &str = "last-backup";

/// Notes that a backup was made now. If the note cannot be written, the backup is still valid.
pub(super) fn note(data: &Path) {
    if let Err(error) = fs::write(data.join(FILE_NAME), b"") {
        tracing::warn!(%error, "cannot note the time of the backup in the data folder");
    }
}

/// Time since the newest backup; `None` if there is none.
pub(crate) fn age(data: &Path) -> Option<Duration> {
    let made = fs::metadata(data.join(FILE_NAME)).and_then(|file| file.modified()).ok()?;
    // A clock that was set back makes it new.
    Some(SystemTime::now().duration_since(made).unwrap_or_default())
}
