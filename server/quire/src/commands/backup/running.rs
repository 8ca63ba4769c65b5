//! Backups of a running server's own data, for its operators.

use std::{
    any::Any,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{anyhow, bail, ensure};
use bookstore::{BookstoreService, FILE_NAME};
use bytes::Bytes;
use futures_util::stream;
use hosting::Error;
use kv::KvService;
use operate::{BackupPieces, MakeBackup};
use tokio::task::spawn_blocking;

use super::{
    archive::{self, Manifest},
    entries, latest,
};
use crate::{commands::data::Progress, pages::Services};

/// The file while it is made.
const NAME: &str = "backup";
/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;

/// Makes backups of the data in the folder `data`, which the services have open.
pub(crate) fn of_services(data: PathBuf) -> Box<dyn FnOnce(Services) -> MakeBackup> {
    Box::new(move |services| {
        Box::new(move || {
            let (file, manifest) = make(&services, &data).map_err(|error| format!("{error:#}"))?;
            let data = data.clone();
            Ok(pieces(file, move || latest::note(&data, &manifest)))
        })
    })
}

/// Reads a backup's file, verifies its checksums, and returns a description of its contents.
pub(crate) fn verify(file: &mut dyn Read) -> Result<String, Error> {
    let manifest = archive::read(file, &Progress::hidden(), |_, _| Ok(()));
    Ok(manifest.map_err(|error| format!("{error:#}"))?.to_string())
}

/// Makes a backup and removes its name; the space is freed when the last reader closes it.
fn make(services: &Services, data: &Path) -> anyhow::Result<(File, Manifest)> {
    let store = find::<BookstoreService>(services).map(BookstoreService::settings);
    let Some(settings) = store else { bail!("the bookstore is off, and a backup is one of its store") };
    ensure!(settings.url.is_none(), super::IN_DATABASE);
    let on_disk = find::<KvService>(services).map(KvService::store_on_disk).transpose();
    let on_disk = on_disk.map_err(|reason| anyhow!("no key-value entries can be copied: {reason}"))?.flatten();
    let entries = |into: &Path| on_disk.map(|store| entries::from_store(store, into)).transpose();
    let store = (&*data.join(FILE_NAME), settings);
    let (whole, manifest) = super::make(&data.join(NAME), store, entries, &Progress::hidden())?;
    let file = whole.reopen()?;
    tracing::info!(%manifest, "a backup was made");
    Ok((file, manifest))
}

fn find<S: Any>(services: &Services) -> Option<&S> {
    services.iter().find_map(|service| (&**service as &dyn Any).downcast_ref())
}

/// The file's bytes, each piece read when the client has room; calls `read` after the last.
fn pieces(file: File, read: impl FnOnce() + Send + 'static) -> BackupPieces {
    Box::pin(stream::try_unfold((file, read), |(mut file, read)| async move {
        let piece = spawn_blocking(move || {
            let mut piece = vec![0; PIECE_BYTES];
            let length = file.read(&mut piece)?;
            if length == 0 {
                read();
                return Ok::<_, io::Error>(None);
            }
            piece.truncate(length);
            Ok(Some((Bytes::from(piece), (file, read))))
        });
        piece.await?
    }))
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;
    use crate::commands::backup::archive::{Books, FORMAT};

    #[test]
    fn a_name_without_end_is_not_read() {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNULongName);
        header.set_path("././@LongLink").expect("a name");
        header.set_size(1 << 30);
        header.set_cksum();
        let mut rest = io::repeat(b'x').take(1 << 30);
        let found = verify(&mut header.as_bytes().chain(&mut rest)).expect_err("no backup").to_string();
        assert!(found.contains("this is no file that `quire backup` made"), "{found}");
        assert!(rest.limit() > (1 << 30) - (4 << 20), "{} bytes are left", rest.limit());
    }

    #[tokio::test]
    async fn a_backup_counts_once_its_last_piece_was_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        std::fs::write(&path, vec![7; PIECE_BYTES + 1]).expect("a file");
        let download = |began: &str| {
            let books = Books { schema: 0, count: 0, copies: 0, log_entries: 0, sold: 0 };
            let manifest =
                Manifest { format: FORMAT, quire: String::new(), began: began.to_owned(), books, entries: None };
            let data = folder.path().to_owned();
            pieces(File::open(&path).expect("a file"), move || latest::note(&data, &manifest))
        };
        let age_hours = || latest::age(folder.path()).map(|age| age.as_secs() / 3600);

        let mut cut = download("2020-01-02T00:00:00Z");
        for length in [PIECE_BYTES, 1] {
            assert_eq!(cut.next().await.expect("a piece").expect("its bytes").len(), length);
        }
        drop(cut);
        assert_eq!(age_hours(), None, "its last byte may not have arrived");

        let mut slow = download("2020-01-01T00:00:00Z");
        slow.next().await.expect("a piece").expect("its bytes");
        assert_eq!(download("2020-01-02T00:00:00Z").count().await, 2);
        let of_the_second = age_hours().expect("a backup");
        assert_eq!(slow.count().await, 1);
        assert_eq!(age_hours(), Some(of_the_second), "an older one");
        assert!(of_the_second > 24 * 365, "its age is that of what it has: {of_the_second} hours");
    }
}
