//! File systems that fill up or are read-only, where the machine lets a test mount them.

use std::{path::Path, process::Command};

use tempfile::TempDir;

/// A small file system in memory; unmounted on drop.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// `None`, with a note on standard error, where mounting is not allowed.
    pub(crate) fn mount(megabytes: u32) -> Option<Self> {
        let folder = super::store::folder();
        let options = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).output();
        let mounted = mounted.is_ok_and(|mounted| mounted.status.success());
        if !mounted {
            eprintln!("left out: this machine does not let the test mount a file system");
        }
        mounted.then_some(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn make_read_only(&self) {
        let done = Command::new("mount").args(["-o", "remount,ro"]).arg(self.path()).status().expect("mount runs");
        assert!(done.success(), "the file system turns read-only");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a server may still be exiting.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
