//! New files and folders of a backup.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use anyhow::Context as _;
use tempfile::{Builder, TempDir};

/// The parent folder.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary folder, removed on drop unless renamed.
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
