//! Checks the lists of fjall's tables before fjall opens them. It does not check them itself: where the list of stores is
//! damaged, it removes the stores that it misses, with all their entries.
//!
//! ```text
//! keyspaces/N/current   number of the list V (8 bytes), XXH3 of the file vV (16), 0; numbers are little-endian
//! ```

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use twox_hash::XxHash3_128;

const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 25;
/// The store that lists the others.
const LIST_OF_STORES: &str = "0";

/// A list is missing or damaged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TablesError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{} is damaged or missing", .0.display())]
    Damaged(PathBuf),
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn is_list(current: &[u8], store: &Path) -> io::Result<bool> {
    let Ok(current) = <[u8; CURRENT_BYTES]>::try_from(current) else { return Ok(false) };
    let (number, rest) = current.split_at(8);
    let number = u64::from_le_bytes(number.try_into().unwrap_or_default());
    let Some(list) = read(&store.join(format!("v{number}")))? else { return Ok(false) };
    Ok(rest[..16] == XxHash3_128::oneshot(&list).to_le_bytes() && rest[16] == 0)
}

/// Checks the lists of all stores in fjall's folder of tables. A store without one was never finished, if nothing is in it.
pub(super) fn check(folder: &Path) -> Result<(), TablesError> {
    let stores = match fs::read_dir(folder) {
        // A crash may have come before the first store.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        stores => stores?,
    };
    let stores: Vec<PathBuf> = stores.map(|store| Ok(store?.path())).collect::<io::Result<_>>()?;
    for store in &stores {
        let path = store.join(CURRENT);
        let is_sound = match read(&path)? {
            Some(current) => is_list(&current, store)?,
            None if store.ends_with(LIST_OF_STORES) => stores.len() == 1,
            None => match fs::read_dir(store.join("tables")) {
                Ok(mut tables) => tables.next().is_none(),
                Err(error) if error.kind() == ErrorKind::NotFound => true,
                Err(error) => return Err(error.into()),
            },
        };
        if !is_sound {
            return Err(TablesError::Damaged(path));
        }
    }
    Ok(())
}
