//! The bookstore's file: the only part that knows SQL. Must not know why something is written.
//!
//! One `SQLite` database in WAL mode with `synchronous=FULL`, so that a returned COMMIT is on disk
//! (<https://www.sqlite.org/pragma.html#pragma_synchronous>).

mod copy;
mod inspect;
mod mend;
mod open;
mod read;
mod reason;
mod rows;
mod schema;
mod write;

pub(crate) use copy::reader;
pub use copy::{Contents, CopyError, contents, copy};
pub(crate) use inspect::NUMBER_MAX;
pub(crate) use mend::{WAL_PAGES, lost_pages, rewrite_log};
pub use open::{OpenError, Opened};
pub(crate) use open::{Role, open};
pub use read::{Page, Readers};
pub(crate) use reason::reason;
pub(crate) use rows::{each_book, insert_books};
pub use schema::VERSION;
pub(crate) use write::{BookChange, Writer};
