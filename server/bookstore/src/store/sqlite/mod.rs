//! The bookstore's file: one `SQLite` database in WAL mode with `synchronous=FULL`, so that a returned COMMIT is on
//! disk (<https://www.sqlite.org/pragma.html#pragma_synchronous>).

mod checkpoints;
mod copy;
mod file;
mod frozen;
mod inspect;
mod keys;
mod mend;
mod open;
mod read;
mod reason;
mod rows;
mod schema;
mod state;
mod transaction;
mod trouble;
mod write;

pub(crate) use copy::reader;
pub use copy::{Contents, CopyError, contents, copy};
pub(crate) use file::SqliteStore;
pub(crate) use frozen::{FreezeError, Frozen};
pub use open::OpenError;
pub(crate) use open::{Role, open};
pub(crate) use reason::reason;
pub(crate) use rows::{each_book, insert_books};
pub use schema::VERSION;
