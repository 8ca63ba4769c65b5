//! Where books and their log are kept: the only part that knows SQL. Must not know why something is written.
//!
//! A [`Store`] is one of two: a file of `SQLite` ([`sqlite`]), or a database of `PostgreSQL` that several servers
//! share ([`postgres`]). The ledger decides on what a [`Session`] shows it, in the same way for both.

mod code;
mod interface;
mod sqlite;

pub use interface::Page;
pub(crate) use interface::{
    BookChange, Broken, Changes, Decide, Facts, Failure, Later, Serve, Session, Store, Wanted,
};
pub use sqlite::{Contents, CopyError, OpenError, VERSION, contents, copy};
pub(crate) use sqlite::{Role, SqliteStore, each_book, insert_books, open, reader, reason};
