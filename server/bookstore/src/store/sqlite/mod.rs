//! The bookstore's file: one `SQLite` database in WAL mode with `synchronous=FULL`, so that a returned COMMIT is on
//! disk (<https://www.sqlite.org/pragma.html#pragma_synchronous>).

mod copy;
mod durability;
mod errors;
mod holds;
mod keys;
mod log;
mod open;
mod read;
mod rows;
mod schema;
mod signed;
mod state;
mod store;
mod transaction;
mod wal;
mod writer;

pub use copy::{Contents, CopyError, contents, copy};
pub(crate) use copy::{FreezeError, Frozen, reader};
pub use errors::OpenError;
pub(crate) use errors::reason;
pub use log::loss::Loss;
pub use log::verify::{Part, Problem, Verified, verify, verify_copy};
pub(crate) use open::{Role, open};
pub(crate) use rows::{each_book, insert_books};
pub use schema::VERSION;
pub(crate) use store::SqliteStore;
