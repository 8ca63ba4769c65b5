//! The bookstore's tables in `PostgreSQL`, shared by any number of servers: the primary decides, and its row locks
//! order the servers' changes of a book.
//!
//! The ledger's [`session`] writes. On a background thread a [`tell`]er notifies the other servers, and a [`follow`]er
//! applies their commits.

mod copy;
mod database;
mod follow;
mod found;
mod import;
mod link;
mod news;
mod pulse;
mod read;
mod rows;
mod schema;
mod session;
mod shown;
mod target;
mod tell;
mod trouble;

pub(super) use copy::Copier;
pub use database::DatabaseError;
pub(crate) use database::open_shared;
pub(crate) use import::Importer;
pub use schema::SchemaError;
pub use target::TargetError;
