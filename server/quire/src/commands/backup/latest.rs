//! The time of the newest backup of a data folder.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

use super::archive::Manifest;

/// The file in the data folder whose time it is.
const FILE_NAME: &str = "last-backup";

/// Notes the time of a backup, unless a newer one is noted. If the note cannot be written, the backup is still valid.
pub(super) fn note(data: &Path, backup: &Manifest) {
    let noted = || -> anyhow::Result<()> {
        let began = humantime::parse_rfc3339(&backup.began)?;
        // A note from the future is of a clock that was set back.
        if time(data).is_none_or(|noted| noted < began || noted > SystemTime::now()) {
            File::create(data.join(FILE_NAME))?.set_modified(began)?;
        }
        Ok(())
    };
    if let Err(error) = noted() {
        tracing::warn!(%error, "cannot note the time of the backup in the data folder");
    }
}

fn time(data: &Path) -> Option<SystemTime> {
    fs::metadata(data.join(FILE_NAME)).and_then(|file| file.modified()).ok()
}

/// Time since the newest backup; `None` if there is none.
pub(crate) fn age(data: &Path) -> Option<Duration> {
    // A clock that was set back makes it new.
    Some(SystemTime::now().duration_since(time(data)?).unwrap_or_default())
}
