//! The secret that signs checkpoints of a log: a file beside the database, which only its owner may read.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
    process,
};

use tlog::{KEY_BYTES, NoteError, Signer, sha256};

use super::super::{
    errors::OpenError,
    log::head::{LogId, beside},
};

/// Begin of the file's one line, before the secret in hexadecimal digits.
const FORM: &str = "quire-log-key-1 ";

/// Mode of the file.
const MODE: u32 = 0o600;

/// The secret. Each log that the file `bookstore.db` holds in its life has a key of its own, made of the secret and of the
/// log's name, so that no key signs two logs.
pub(super) struct Secret([u8; KEY_BYTES]);

impl Secret {
    /// Reads the database's secret, or makes it.
    pub(super) fn of(database: &Path) -> Result<Self, OpenError> {
        let path = beside(database, "-key");
        let unusable = |reason: io::Error| OpenError::Other {
            path: path.clone(),
            reason: format!("{reason}; it holds the key that signs receipts: put it back, or delete it for a new key"),
        };
        if !path.exists() {
            make(database, &path).map_err(unusable)?;
        }
        read(&path).map_err(unusable)
    }

    /// The key of a log, with the name that its checkpoints have.
    pub(super) fn signer(&self, id: &LogId, name: &str) -> Result<Signer, NoteError> {
        Signer::new(name, &sha256(&[FORM.as_bytes(), &self.0, id]).0)
    }
}

fn read(path: &Path) -> io::Result<Secret> {
    let mut file = fs::File::open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others may read the key that signs receipts; `chmod 600` it");
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let digits = text.trim_end().strip_prefix(FORM).filter(|digits| digits.len() == 2 * KEY_BYTES);
    let bytes = digits.and_then(|digits| {
        let digit = |at: usize| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok();
        (0..KEY_BYTES).map(digit).collect::<Option<Vec<u8>>>()?.try_into().ok()
    });
    bytes.map(Secret).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is damaged or of another program"))
}

/// Makes the file, whole or not at all; another process may be first.
fn make(database: &Path, path: &Path) -> io::Result<()> {
    let secret = tlog::new_seed()?.iter().fold(FORM.to_owned(), |text, byte| text + &format!("{byte:02x}"));
    let draft = PathBuf::from(format!("{}.{}", path.display(), process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&draft)?;
    // As with the head, so that a tool which root ran locks no server out.
    let owner = fs::metadata(database)?;
    _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
    writeln!(file, "{secret}")?;
    file.sync_all()?;
    let named = match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        named => named,
    };
    fs::remove_file(&draft)?;
    named?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_made_once_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("bookstore.db");
        fs::write(&database, "").unwrap();
        let first = Secret::of(&database).unwrap();
        let again = Secret::of(&database).unwrap();
        assert_eq!(first.0, again.0);
        let path = folder.path().join("bookstore.db-key");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no draft is left");
        fs::remove_file(&path).unwrap();
        assert_ne!(Secret::of(&database).unwrap().0, first.0);
    }

    #[test]
    fn each_log_and_each_name_has_a_key_of_its_own() {
        let secret = Secret([7; KEY_BYTES]);
        let key = |id, name| secret.signer(&[id; 16], name).unwrap().verifier().to_string();
        assert_eq!(key(1, "a"), key(1, "a"));
        let bytes = |key: String| key.splitn(3, '+').nth(2).unwrap().to_owned();
        assert_ne!(bytes(key(1, "a")), bytes(key(2, "a")), "the log of a restored store is another one");
        assert_eq!(bytes(key(1, "a")), bytes(key(1, "b")));
    }

    #[test]
    fn a_damaged_secret_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (database, path) = (folder.path().join("bookstore.db"), folder.path().join("bookstore.db-key"));
        for text in ["", "quire-log-key-1 ", "quire-log-key-1 00ff", &format!("quire-log-key-1 {}", "é".repeat(32))] {
            fs::write(&path, text).unwrap();
            let error = Secret::of(&database).err().unwrap().to_string();
            assert!(error.contains("bookstore.db-key: it is damaged"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
