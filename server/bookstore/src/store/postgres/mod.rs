//! The bookstore's tables in `PostgreSQL`, shared by any number of servers: the primary decides, and its row locks
//! order the servers' changes of a book.
//!
//! The ledger's [`transaction`]s write. On a background thread [`notify`] announces their commits to the other servers,
//! and [`follow`] applies those of others.

mod announcements;
mod bulk;
mod errors;
mod follow;
mod link;
mod notify;
mod read;
mod rows;
mod schema;
mod store;
mod target;
mod transaction;
mod visible;

pub(super) use bulk::Copier;
pub(crate) use bulk::Importer;
pub use schema::SchemaError;
pub use store::DatabaseError;
pub(crate) use store::open_shared;
pub use target::TargetError;
