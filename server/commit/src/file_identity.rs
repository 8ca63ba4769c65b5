//! A file that a store has open, and the check that its path still leads to it. A commit into a file that was deleted,
//! moved or replaced is on disk and still lost, because the next start does not find it.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Path of an open file, and the file that it led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileIdentity {
    path: PathBuf,
    inode: Inode,
}

/// A file on this machine. The inode number of a deleted file is reused, so the time of birth counts where the
/// file system has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
    born: Option<SystemTime>,
}

/// A path no longer leads to the open file. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Moved {
    /// It leads to no file.
    #[error(
        "{} was deleted or moved while it was open: move it back, or stop the server and start it on the folder where it is",
        .0.display()
    )]
    Gone(PathBuf),
    /// It leads to another file.
    #[error(
        "{} was replaced by another file while it was open: move the first one back, or restart the server to use the other",
        .0.display()
    )]
    Replaced(PathBuf),
    /// The system cannot look it up.
    #[error("{} cannot be found ({reason}): make its folder readable, or repair the disk", path.display())]
    Unseen {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
}

impl FileIdentity {
    /// The file at `path`, which is open or is opened next.
    pub fn of(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        Ok(Self { inode: inode_at(&path)?, path })
    }

    /// Fails if the path leads to another file or to none. Costs one system call.
    pub fn check(&self) -> Result<(), Moved> {
        match inode_at(&self.path) {
            Ok(inode) if inode == self.inode => Ok(()),
            Ok(_) => Err(Moved::Replaced(self.path.clone())),
            Err(reason) if matches!(reason.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(Moved::Gone(self.path.clone()))
            }
            Err(reason) => Err(Moved::Unseen { path: self.path.clone(), reason }),
        }
    }
}

fn inode_at(path: &Path) -> io::Result<Inode> {
    let found = fs::metadata(path)?;
    Ok(Inode { device: found.dev(), number: found.ino(), born: found.created().ok() })
}

#[cfg(test)]
mod tests {
    use super::{FileIdentity, Moved};
    use std::fs;

    #[test]
    fn only_the_file_itself_passes_the_check() {
        let folder = tempfile::tempdir().unwrap();
        let (data, away) = (folder.path().join("data"), folder.path().join("away"));
        let path = data.join("a");
        fs::create_dir(&data).unwrap();
        fs::write(&path, "a").unwrap();
        let identity = FileIdentity::of(&path).unwrap();
        fs::write(&path, "longer").unwrap();
        assert!(identity.check().is_ok(), "contents do not matter");
        fs::rename(&data, &away).unwrap();
        assert!(matches!(identity.check(), Err(Moved::Gone(_))), "moved");
        fs::create_dir(&data).unwrap();
        fs::copy(away.join("a"), &path).unwrap();
        assert!(matches!(identity.check(), Err(Moved::Replaced(_))), "a copy");
        fs::rename(away.join("a"), &path).unwrap();
        assert!(identity.check().is_ok(), "moved back");
        // The inode of the deleted file is the first that is free.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a").unwrap();
        assert!(matches!(identity.check(), Err(Moved::Replaced(_))), "made anew");
    }
}
