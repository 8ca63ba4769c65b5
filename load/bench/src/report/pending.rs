//! A file that appears under its name only when complete.
//!
//! Data goes to a temporary file in the same folder, which is then renamed.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use tempfile::{Builder, NamedTempFile};

/// An output file, open for writing.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    into: Destination,
}

#[derive(Debug)]
enum Destination {
    /// A temporary file until it is complete.
    Temporary(NamedTempFile),
    /// A device or a pipe, which cannot be replaced.
    Direct(File),
    /// `-`.
    StandardOutput(io::Stdout),
}

impl Pending {
    /// Opens `path` for writing; `-` is standard output. An existing file stays as it is until [`Self::finish_as`].
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let into = if path == Path::new("-") { Ok(Destination::StandardOutput(io::stdout())) } else { open(path) };
        let into = into.with_context(|| format!("cannot write {}", path.display()))?;
        // The target of a link is replaced, not the link.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self { path, into })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_standard_output(&self) -> bool {
        matches!(self.into, Destination::StandardOutput(_))
    }

    /// True if the file appears only when complete.
    pub fn is_temporary(&self) -> bool {
        matches!(self.into, Destination::Temporary(_))
    }

    /// Writes all bytes and gives the file its name.
    pub fn write_whole(mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.write_all(bytes).with_context(|| format!("cannot write {}", self.path.display()))?;
        let path = self.path.clone();
        self.finish_as(&path)
    }

    /// Gives the file a name in the same folder; a device or a pipe is flushed and keeps its name.
    pub fn finish_as(mut self, path: &Path) -> anyhow::Result<()> {
        let wrong = || format!("cannot write {}", path.display());
        self.flush().with_context(wrong)?;
        if let Destination::Temporary(file) = self.into {
            file.persist(path).with_context(wrong)?;
        }
        Ok(())
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.into.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.writer().flush()
    }
}

impl Destination {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Temporary(file) => file,
            Self::Direct(file) => file,
            Self::StandardOutput(out) => out,
        }
    }
}

fn open(path: &Path) -> anyhow::Result<Destination> {
    let name = path.file_name().context("it does not name a file")?;
    match std::fs::metadata(path) {
        Ok(there) if there.is_dir() => bail!("it is a folder"),
        Ok(there) if there.is_file() => {
            // The folder permits replacing it, but the file is read-only on purpose.
            OpenOptions::new().append(true).open(path)?;
        }
        Ok(_) => return Ok(Destination::Direct(OpenOptions::new().write(true).open(path)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure!(folder.is_dir(), "there is no folder {}", folder.display());
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    let mut builder = Builder::new();
    // Permissions of an ordinary new file; the process's umask applies.
    builder.prefix(&prefix).suffix(".partial").permissions(Permissions::from_mode(0o666));
    Ok(Destination::Temporary(builder.tempfile_in(folder)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder is there");
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_that_is_there_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.json");
        std::fs::write(&path, "old").expect("writable");
        let mut pending = Pending::create(&path).expect("writable");
        pending.write_all(b"ne").expect("writable");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "old");
        pending.write_whole(b"w").expect("writable");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "new");
        assert_eq!(names(folder.path()), ["report.json"]);
    }

    #[test]
    fn what_is_given_up_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pending = Pending::create(&folder.path().join("report.json")).expect("writable");
        pending.write_all(b"half").expect("writable");
        drop(pending);
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn places_that_take_no_file_are_refused_before_anything_is_measured() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = |path: &Path| format!("{:#}", Pending::create(path).expect_err("not writable"));
        let error = refused(folder.path());
        assert!(error.starts_with("cannot write ") && error.ends_with(": it is a folder"), "{error}");
        let error = refused(&folder.path().join("no/such/report.json"));
        assert!(error.contains("there is no folder "), "{error}");
        assert!(refused(Path::new("/")).contains("does not name a file"));
        assert!(!refused(Path::new("/proc/report.json")).is_empty());
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn a_device_is_written_to_and_stays_a_device() {
        Pending::create(Path::new("/dev/null")).expect("writable").write_whole(b"gone").expect("writable");
        assert!(!std::fs::metadata("/dev/null").expect("there").is_file());
    }

    #[test]
    fn a_link_is_kept_and_its_target_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        std::fs::write(&target, "old").expect("writable");
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        Pending::create(&link).expect("writable").write_whole(b"new").expect("writable");
        assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(std::fs::read_to_string(&target).expect("there"), "new");
    }
}
