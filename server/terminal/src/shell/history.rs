//! Lines typed in earlier sessions, stored in the user's state folder. If the file is unusable, history is kept for
//! this session only.

use std::{
    env, fs,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustyline::history::{FileHistory, History as _};

/// Maximum number of lines in the file.
pub(super) const LINES_MAX: usize = 1000;
/// Maximum length of a line in the file.
const LINE_BYTES_MAX: usize = 1000;
/// Largest file that is read: every line escaped, with room to spare.
const FILE_BYTES_MAX: u64 = 4 << 20;

pub(super) fn is_kept(line: &str) -> bool {
    !line.trim().is_empty() && line.len() <= LINE_BYTES_MAX
}

/// Reads the history `name`; returns the file to append to.
pub(super) fn open(name: &str, history: &mut FileHistory) -> Option<PathBuf> {
    let folder = folder()?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let path = folder.join(format!("{name}_history"));
    // Created here, because the editor would change the whole process's umask for it.
    let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path).ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > FILE_BYTES_MAX {
        return None;
    }
    history.load(&path).ok()?;
    Some(path)
}

pub(super) fn append(path: Option<&Path>, history: &mut FileHistory) {
    // On failure the line is still in this session's history.
    let _ = path.map(|path| history.append(path));
}

/// State folder by the XDG Base Directory Specification; relative paths are ignored.
fn folder() -> Option<PathBuf> {
    let from = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = from("XDG_STATE_HOME").or_else(|| Some(from("HOME")?.join(".local/state")))?;
    Some(state.join("quire"))
}
