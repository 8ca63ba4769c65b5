//! A disk that loses the data of failed fsyncs, and power cuts: `tests/shim/lost_pages.c` loaded into the programs
//! under test.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::UNIX_EPOCH,
};

use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/shim/lost_pages.c");

/// The shim, built once per process.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (library, own) = (target.join("lost_pages.so"), target.join(format!("lost_pages.{}", std::process::id())));
        let done = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&own).arg(SOURCE).status();
        assert!(done.expect("a C compiler, cc, is installed").success(), "{SOURCE} compiles");
        // Renamed, because other test processes may be loading it.
        fs::rename(&own, &library).expect("the library takes its place");
        library
    })
}

/// A simulated disk below the files of one folder, for processes that have its variables.
#[derive(Debug)]
pub(crate) struct LostPages {
    folder: PathBuf,
    shadow: TempDir,
}

impl LostPages {
    /// The contents of `folder` count as durable; no process uses it yet.
    pub(crate) fn under(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("a folder");
        Self { folder: folder.to_owned(), shadow: tempfile::tempdir().expect("a folder") }
    }

    /// Environment of a process on this disk.
    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        [
            ("LD_PRELOAD", text(library())),
            ("LOST_PAGES_FOLDER", text(&self.folder)),
            ("LOST_PAGES_SHADOW", text(self.shadow.path())),
        ]
    }

    /// Of the fsyncs of files whose path ends in `suffix`, `skip` succeed and then `count` fail; `keep` percent of
    /// their pages are written nevertheless. Replaces earlier calls.
    pub(crate) fn fail(&self, suffix: &str, skip: u32, count: u32, keep: u32) {
        let (rule, own) = (self.shadow.path().join("fail"), self.shadow.path().join("fail.new"));
        fs::write(&own, format!("{suffix} {skip:010} {count:010} {keep:03}\n")).expect("a rule");
        fs::rename(own, rule).expect("the rule takes its place");
    }

    /// Requested failures still to come.
    pub(crate) fn failures_left(&self) -> u32 {
        let rule = fs::read_to_string(self.shadow.path().join("fail")).unwrap_or_default();
        rule.split(' ').nth(2).and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Resets every file to its durable content. All processes on this disk must have been killed before.
    pub(crate) fn power_cut(&self) {
        self.cut(&self.folder);
        for file in fs::read_dir(self.shadow.path()).expect("the shadows").flatten() {
            fs::remove_file(file.path()).expect("a shadow can go");
        }
    }

    fn cut(&self, folder: &Path) {
        for file in fs::read_dir(folder).expect("the folder") {
            let file = file.expect("a file");
            let is = file.metadata().expect("the file is there");
            if is.is_dir() {
                self.cut(&file.path());
                continue;
            }
            // Zero without a birth time in the file system, as in the shim.
            let birth = is.created().ok().and_then(|birth| birth.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
            let name = format!("{}-{}.{:09}.durable", is.ino(), birth.as_secs(), birth.subsec_nanos());
            if let Ok(durable) = fs::read(self.shadow.path().join(name)) {
                fs::write(file.path(), durable).expect("the file can be written");
            }
        }
    }
}

/// Writes one page of `byte` at `page` with `dd` and syncs the file; false on failure.
#[cfg(test)]
fn write_page(disk: &LostPages, file: &Path, byte: &str, page: u32) -> bool {
    let script = format!(
        "head -c 4096 /dev/zero | tr '\\0' {byte} | dd of={} bs=4096 seek={page} conv=notrunc,fsync 2>/dev/null",
        file.display()
    );
    Command::new("sh").args(["-c", &script]).envs(disk.variables()).status().expect("sh runs").success()
}

#[cfg(test)]
fn pages(file: &Path) -> String {
    let bytes = fs::read(file).expect("the file is there");
    assert!(bytes.chunks(4096).all(|page| page.iter().all(|byte| *byte == page[0])), "pages are whole");
    bytes.chunks(4096).map(|page| if page[0] == 0 { '-' } else { char::from(page[0]) }).collect()
}

#[test]
fn what_a_failed_fsync_lost_shows_until_the_power_is_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let (disk, file) = (LostPages::under(folder.path()), folder.path().join("file"));
    assert!(write_page(&disk, &file, "a", 0) && write_page(&disk, &file, "b", 1));
    disk.fail("file", 1, 1, 0);
    assert!(write_page(&disk, &file, "c", 1));
    assert_eq!(disk.failures_left(), 1);
    assert!(!write_page(&disk, &file, "d", 0), "dd is told");
    assert_eq!(disk.failures_left(), 0);
    assert!(write_page(&disk, &file, "e", 3), "later fsyncs succeed");
    assert_eq!(pages(&file), "dc-e");
    disk.power_cut();
    assert_eq!(pages(&file), "ac-e", "and did not write what the failed one lost");
    assert!(write_page(&disk, &file, "f", 0));
    disk.power_cut();
    assert_eq!(pages(&file), "fc-e");
}

#[test]
fn a_file_that_was_emptied_and_never_synced_is_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let (disk, file) = (LostPages::under(folder.path()), folder.path().join("file"));
    assert!(write_page(&disk, &file, "a", 0) && write_page(&disk, &file, "b", 1));
    let script = format!("echo new > {}", file.display());
    let shell = || Command::new("sh").args(["-c", &script]).envs(disk.variables()).status().expect("sh runs");
    assert!(shell().success());
    assert_eq!(fs::read_to_string(&file).expect("text"), "new\n");
    disk.power_cut();
    assert_eq!(pages(&file), "ab");
    assert!(shell().success());
    assert!(write_page(&disk, &file, "c", 2));
    disk.power_cut();
    let bytes = fs::read(&file).expect("the file is there");
    assert_eq!((bytes.len(), &bytes[..5], bytes[4096]), (3 * 4096, &b"new\n\0"[..], 0), "the cut came with the fsync");
}
