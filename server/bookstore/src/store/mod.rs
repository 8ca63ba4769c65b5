//! Storage of books and their log: the only part that knows SQL.
//!
//! A [`Store`] is either a file of `SQLite` ([`sqlite`]), or a database of `PostgreSQL` shared by several servers
//! ([`postgres`]). The ledger decides on the [`Facts`] of a [`LedgerTransaction`], in the same way for both.

#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only a shared database needs all of it"))]
mod facts;
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only a shared database needs all of it"))]
mod interface;
mod leaf;
mod migrate;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(not(feature = "postgres"))]
#[path = "without_postgres.rs"]
mod postgres;
mod range;
mod sqlite;
mod sums;

pub(crate) use facts::{BookFacts, Facts, Wanted};
pub use interface::Page;
pub(crate) use interface::Which;
pub(crate) use interface::kind;
pub(crate) use interface::{
    BookChange, BookPut, Broken, Changes, LedgerConnection, SignedLog, Store, TransactionError, TransactionId,
};
pub(crate) use leaf::Decoded;
pub use migrate::{Found, MigrateError, Migrated, Plan, look, migrate, plan_migration};
pub use postgres::DatabaseError;
pub(crate) use postgres::{Importer, open_shared};
#[cfg(feature = "postgres")]
pub use postgres::{SchemaError, TargetError};
pub use sqlite::{
    Contents, CopyError, Loss, OpenError, Part, Problem, VERSION, Verified, contents, copy, verify, verify_copy,
};
pub(crate) use sqlite::{Role, SqliteStore, each_book, insert_books, open, reader, reason};
pub(crate) use sums::Count;
pub use sums::Sums;
