//! New files and folders of a backup. Must not know what is in them.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use anyhow::Context as _;
use tempfile::{Builder, TempDir};

/// The folder that a file or a folder is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removed when it is dropped, unless it was renamed.
pub(super) fn temporary_in(folder: &Path) -> anyhow::Result<TempDir> {
    let made = Builder::new().prefix(".quire-").tempdir_in(folder);
    made.with_context(|| format!("cannot write into the folder {}", folder.display()))
}

/// A new file that only its owner may read.
pub(super) fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

pub(super) fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
