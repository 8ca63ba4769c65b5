//! Requests, catalogues from CSV, and the store's file opened as another program.

use std::{fs, path::Path};

use bookstore::grpc::wire::ItemNumberRequest;
use rusqlite::Connection;
use tempfile::TempDir;

use super::process;

/// The sample catalogue's first book.
pub(crate) const BOOK: i32 = 12365;

/// The sample catalogue's books, by id.
pub(crate) const BOOKS: [i32; 4] = [12365, 12498, 53477, 53573];

/// A request for one copy without a key.
pub(crate) fn one(id: i32) -> ItemNumberRequest {
    ItemNumberRequest { id, ..ItemNumberRequest::default() }
}

/// A request for one copy with a key.
pub(crate) fn keyed(id: i32, key: &str) -> ItemNumberRequest {
    ItemNumberRequest { id, quantity: None, idempotency_key: key.as_bytes().to_vec() }
}

pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A folder whose store holds these CSV rows beside the sample catalogue.
pub(crate) fn folder_with(rows: &str) -> TempDir {
    let folder = folder();
    let done = import(folder.path(), rows.as_bytes(), &[]);
    assert!(done.status.success(), "{done:?}");
    folder
}

/// Runs `quire import` on these rows, preceded by the right header.
pub(crate) fn import(folder: &Path, rows: &[u8], flags: &[&str]) -> std::process::Output {
    import_file(folder, &[b"id,title,topic,stock,price\n", rows].concat(), flags)
}

/// Runs `quire import` on a whole file.
pub(crate) fn import_file(folder: &Path, csv: &[u8], flags: &[&str]) -> std::process::Output {
    fs::write(folder.join("books.csv"), csv).expect("a file");
    process::run(folder, &[&["import", "books.csv", "--data", "data"], flags].concat(), "")
}

/// The store's file.
pub(crate) fn database(folder: &Path) -> std::path::PathBuf {
    folder.join("data/bookstore.db")
}

/// The store opened as by another program.
pub(crate) fn other_program(folder: &Path) -> Connection {
    let connection = Connection::open(database(folder)).expect("the file opens");
    connection.busy_timeout(super::PATIENCE).expect("a timeout can be set");
    connection
}
