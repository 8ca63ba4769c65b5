//! Backups of a running server's own data, for its operators.

use std::{
    any::Any,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{anyhow, bail, ensure};
use bookstore::{BookstoreService, FILE_NAME};
use bytes::Bytes;
use futures_util::stream;
use hosting::Error;
use kv::KvService;
use operate::{BackupPieces, MakeBackup, Making};
use tokio::task::spawn_blocking;

use super::{entries, latest};
use crate::{commands::data::Progress, pages::Services};

/// The file while it is made.
const NAME: &str = "backup";
/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;

/// Makes backups of the data in the folder `data`, which the services have open.
pub(crate) fn of_services(data: PathBuf) -> Box<dyn FnOnce(Services) -> MakeBackup> {
    Box::new(move |services| {
        Box::new(move || -> Making {
            let (services, data) = (Arc::clone(&services), data.clone());
            Box::pin(async move {
                let file = spawn_blocking(move || make(&services, &data)).await??;
                Ok(pieces(file))
            })
        })
    })
}

/// Makes a backup and removes its name; the space is freed when the last reader closes it.
fn make(services: &Services, data: &Path) -> Result<File, Error> {
    let made = || -> anyhow::Result<File> {
        let store = find::<BookstoreService>(services).map(BookstoreService::settings);
        let Some(settings) = store else { bail!("the bookstore is off, and a backup is one of its store") };
        ensure!(settings.url.is_none(), super::IN_DATABASE);
        let on_disk = find::<KvService>(services).map(KvService::store_on_disk).transpose();
        let on_disk = on_disk.map_err(|reason| anyhow!("no key-value entries can be copied: {reason}"))?.flatten();
        let entries = |into: &Path| on_disk.map(|store| entries::from_store(store, into)).transpose();
        let store = (&*data.join(FILE_NAME), settings);
        let (whole, manifest) = super::make(&data.join(NAME), store, entries, &Progress::hidden())?;
        let file = whole.reopen()?;
        latest::note(data);
        tracing::info!(%manifest, "a backup was made");
        Ok(file)
    };
    made().map_err(|error| format!("{error:#}").into())
}

fn find<S: Any>(services: &Services) -> Option<&S> {
    services.iter().find_map(|service| (&**service as &dyn Any).downcast_ref())
}

/// The file's bytes, each piece read when the client has room.
fn pieces(file: File) -> BackupPieces {
    Box::pin(stream::try_unfold(file, |mut file| async move {
        let read = spawn_blocking(move || {
            let mut piece = vec![0; PIECE_BYTES];
            let length = file.read(&mut piece)?;
            piece.truncate(length);
            Ok::<_, std::io::Error>((length > 0).then(|| (Bytes::from(piece), file)))
        });
        read.await?
    }))
}
