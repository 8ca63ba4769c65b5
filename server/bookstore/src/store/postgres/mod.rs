//! The bookstore's tables in `PostgreSQL`, shared by any number of servers: the primary decides, and its row locks order
//! what servers do to a book. Must not know what a purchase is.
//!
//! The ledger's [`session`] writes. On a thread in the background a [`tell`]er tells the other servers of it, and a [`follow`]er
//! takes over what they commit.

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
